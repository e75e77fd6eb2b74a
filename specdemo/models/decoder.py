"""One decoder layer of the Llama family for inference and the cache it fills, shared by the target
and every drafter.

A pass is a loop over layers; each layer gets rows ``[n, H]`` and a function that stores its new
keys and values and attends. Who sees whom, and which slots are written, is all that differs between
the target (a tree of tokens), a block drafter (blocks beside their context) and an autoregressive
drafter (a chain).

Shapes: ``n`` rows, ``H`` hidden size, ``Hq`` query heads, ``Hkv`` key heads, ``G = Hq / Hkv`` query
heads that share a key head, ``D`` head dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .blocks import Bits
from .linear import Linear

# attend(layer index, q [1, Hkv, G * n, D], k [Hkv, n, D], v [Hkv, n, D]) -> [1, Hkv, G * n, D]:
# stores k and v of the pass's n rows and returns what each query reads
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


# A text is read in chunks of so many rows, the last one padded to whole steps: for every new row
# count oneDNN keeps kernels (some 2.6 MB of them for the layers of SmolLM2-135M).
CHUNK_ROWS, ROW_STEP = 256, 32


def whole_steps(rows: int) -> int:
    """``rows`` padded to whole steps of :data:`ROW_STEP`."""
    return -(-rows // ROW_STEP) * ROW_STEP


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def signed_sin(sin: torch.Tensor) -> torch.Tensor:
    """``[..., D]`` with the first half negated: the sign of Llama's ``rotate_half``, folded in."""
    half = sin.shape[-1] // 2
    return torch.cat((-sin[..., :half], sin[..., half:]), -1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions (RoFormer, arXiv 2104.09864); ``sin`` comes from :func:`signed_sin`."""
    return x * cos + torch.roll(x, x.shape[-1] // 2, -1) * sin


class KVCache:
    """Static keys and values of one sequence.

    Attributes:
        keys, values: ``[layers, Hkv, capacity, D]``; slot = position for everything committed.
        length: committed slots. What lies behind them is overwritten by the next pass.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.keys = torch.zeros(layers, kv_heads, capacity, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def reserve(self, capacity: int) -> None:
        """Make room for ``capacity`` slots; what is stored stays."""
        missing = capacity - self.capacity
        if missing > 0:
            self.keys = F.pad(self.keys, (0, 0, 0, missing))
            self.values = F.pad(self.values, (0, 0, 0, missing))

    def write(
        self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store ``k, v [Hkv, n, D]`` in the slots from ``start`` on; that layer's whole ``[Hkv,
        capacity, D]`` keys and values.
        """
        keys, values, end = self.keys[layer], self.values[layer], start + k.shape[1]
        keys[:, start:end] = k
        values[:, start:end] = v
        return keys, values

    def commit(self, path: list[int]) -> None:
        """Keep the anchor's row and the rows of ``path`` (nodes of the draft, parents first) of the
        last pass, moved together; forget its other rows.
        """
        first, n = self.length + 1, len(path)
        if path != list(range(n)):
            for slots in self.stored():
                source = torch.tensor([first + node for node in path], device=slots.device)
                slots[:, :, first : first + n] = slots[:, :, source]
        self.length = first + n

    def copy_from(self, other: KVCache) -> None:
        """Commit what ``other`` has committed, in place of everything."""
        self.repeat(other, other.length, other.length)

    def repeat(self, other: KVCache, period: int, length: int) -> None:
        """Commit ``length`` slots, the first ``period`` of ``other`` again and again, in place of
        everything.
        """
        self.like(other)
        for mine, theirs in zip(self.stored(), other.stored(), strict=True):
            for start in range(0, length, max(period, 1)):
                end = min(start + period, length)
                mine[:, :, start:end] = theirs[:, :, : end - start]
        self.length = length

    def stored(self) -> list[torch.Tensor]:
        """All that is stored, ``[layers, Hkv, capacity, D]`` each."""
        return [self.keys, self.values]

    def like(self, other: KVCache) -> None:
        """Make room for the layers that ``other`` has; here they are the same."""

    def rollback(self, length: int) -> None:
        """Forget everything from slot ``length`` on.

        Raises:
            ValueError: fewer slots are committed.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: {self.length} slots are committed")
        self.length = length


class WindowCache(KVCache):
    """Keys and values of the last positions of a growing text: at least those that a window of
    ``window`` positions needs, and all of them where it is None.

    Attributes:
        start: the position of slot 0.
    """

    SPARE = 256  # positions read before the window moves to the front again

    def __init__(self, *shape: Any, window: int | None = None):
        """``shape`` as in :class:`KVCache`."""
        super().__init__(*shape)
        self.window, self.start = window, 0

    @property
    def end(self) -> int:
        """The position behind the last one that is committed."""
        return self.start + self.length

    def clip(self, position: int, rows: torch.Tensor) -> tuple[int, torch.Tensor]:
        """``rows [n, ...]`` at positions from ``position`` on, cut to the window's last ones, and
        the position of the first that is left.

        Raises:
            ValueError: ``position`` lies behind the end, or before what is kept.
        """
        if not self.start <= position <= self.end:
            raise ValueError(
                f"rows must be given without a gap: {self.end} are known, these start at {position}"
            )
        if self.window is not None and len(rows) > self.window:
            position += len(rows) - self.window
            rows = rows[-self.window :]
        return position, rows

    def place(self, position: int, n: int, reading: bool = False) -> int:
        """The slot of ``position``, with room for ``n`` rows from there on. What no row from
        ``position + n`` on reads may be forgotten, and with ``reading`` none of the ``n`` rows,
        each the window that ends with itself; where a gap lies before ``position``, all of it is.
        """
        if position > self.end:
            self.start, self.length = position, 0
        slot = position - self.start
        if self.window is not None and slot + n > self.capacity:
            first = min(n, 1) if reading else n
            forgotten = min(slot, max(0, slot + first - self.window))
            for stored in (self.keys, self.values):
                stored[:, :, : slot - forgotten] = stored[:, :, forgotten:slot].clone()
            self.start, slot = self.start + forgotten, slot - forgotten
        self.reserve(slot + n)
        return slot

    def seen(self, position: int) -> tuple[int, int]:
        """The slots (first, behind the last) that a row at ``position`` reads: at most the window,
        strictly before it.
        """
        end = max(0, min(self.length, position - self.start))
        return 0 if self.window is None else max(0, end - self.window), end

    def rollback(self, length: int) -> None:
        """Forget everything from *position* ``length`` on.

        Raises:
            ValueError: fewer are committed, or the window has passed it.
        """
        if not self.start <= length <= self.end:
            raise ValueError(
                f"cannot roll back to {length}: positions {self.start} to {self.end} are stored"
            )
        self.length = length - self.start


@dataclass(frozen=True)
class DecoderShape:
    """What a layer needs to know of its model's config."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float  # of every RMSNorm


@dataclass
class DecoderLayer:
    """A pre-norm residual layer without gradients: q, k and v in one product, gate and up in one;
    biases of q, k, v (Qwen2) and of the attention's output, and norms of q and k (Qwen3) are
    optional.
    """

    index: int
    shape: DecoderShape
    attention_norm: torch.Tensor
    qkv: Linear
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    out_bias: torch.Tensor | None = None

    @classmethod
    def from_module(
        cls,
        module: Any,
        index: int,
        shape: DecoderShape,
        device: torch.device,
        dtype: torch.dtype,
        shared: bool = False,
        bits: Bits = 16,
    ) -> DecoderLayer:
        """Fuse a layer of transformers' Llama, Mistral, Qwen2 or Qwen3, or one of
        :mod:`.layers`.

        Args:
            shared: where a product keeps the fused weight as it is, make the module's weights views
                of it, so that nothing is stored twice while the module stays in use.
            bits: of the weights of products, see :class:`.linear.Linear`.

        Raises:
            AttributeError: the module lacks a part of such a layer, or has biases in its MLP.
        """
        attention, mlp = module.self_attn, module.mlp
        biases = [p.bias for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
        if any(p.bias is not None for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)):
            raise AttributeError("biases in its MLP")

        def product(*projections: torch.nn.Linear) -> Linear:
            fused = fuse(projections)
            made = Linear(fused, device, dtype, bits)
            if shared and made.weight is not None and len(projections) > 1:
                share(projections, fused)
            return made

        def norm(part: Any) -> torch.Tensor:
            return part.weight.detach().to(device, dtype)

        q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        out_bias = attention.o_proj.bias

        return cls(
            index,
            shape,
            attention_norm=norm(module.input_layernorm),
            qkv=product(attention.q_proj, attention.k_proj, attention.v_proj),
            qkv_bias=None if biases[0] is None else torch.cat(biases).detach(),
            q_norm=None if q_norm is None else norm(q_norm),
            k_norm=None if k_norm is None else norm(k_norm),
            out=product(attention.o_proj),
            mlp_norm=norm(module.post_attention_layernorm),
            gate_up=product(mlp.gate_proj, mlp.up_proj),
            down=product(mlp.down_proj),
            out_bias=None if out_bias is None else out_bias.detach().to(device, dtype),
        )

    def __call__(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """``x [n, H] -> [n, H]``; ``cos``, signed ``sin``: ``[n, 1, D]`` of the rows' positions."""
        normed = rms_norm(x, self.attention_norm, self.shape.eps)
        x = x + self.attention(normed, cos, sin, attend)
        return x + self.mlp(rms_norm(x, self.mlp_norm, self.shape.eps))

    def attention(
        self, normed: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """What the attention adds to the rows whose norm is ``normed [n, H]``."""
        attended = attend(self.index, *self.project(normed, cos, sin))
        out = self.out(rows_of_heads(attended, normed.shape[0]))
        return out if self.out_bias is None else out + self.out_bias

    def mlp(self, normed: torch.Tensor) -> torch.Tensor:
        """What the MLP adds to the rows whose norm is ``normed [n, H]``."""
        gate, up = self.gate_up(normed).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def project(
        self, normed: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries ``[1, Hkv, G * n, D]`` (heads that share a key head become rows), rotated
        keys and values ``[Hkv, n, D]``.
        """
        n, s = normed.shape[0], self.shape
        qkv = self.qkv(normed)
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias
        qkv = qkv.view(n, s.heads + 2 * s.kv_heads, s.head_dim)
        qk, v = qkv[:, : s.heads + s.kv_heads], qkv[:, s.heads + s.kv_heads :]
        if self.q_norm is not None:
            q, k = qk[:, : s.heads], qk[:, s.heads :]
            qk = torch.cat((rms_norm(q, self.q_norm, s.eps), self.norm_keys(k)), 1)
        qk = rotate(qk, cos, sin)
        q = qk[:, : s.heads].transpose(0, 1)
        q = q.reshape(1, s.kv_heads, s.heads // s.kv_heads * n, s.head_dim)
        return q, qk[:, s.heads :].transpose(0, 1), v.transpose(0, 1)

    def norm_keys(self, k: torch.Tensor) -> torch.Tensor:
        """Keys ``[..., D]`` before rotation, normed where the layer norms them."""
        return k if self.k_norm is None else rms_norm(k, self.k_norm, self.shape.eps)


def rows_of_heads(x: torch.Tensor, n: int) -> torch.Tensor:
    """``[1, Hkv, G * n, D] -> [n, Hq * D]``"""
    _, kv_heads, rows, dim = x.shape
    group = rows // n
    return x.view(kv_heads, group, n, dim).permute(2, 0, 1, 3).reshape(n, kv_heads * group * dim)


def fuse(projections: tuple[torch.nn.Linear, ...]) -> torch.Tensor:
    """The projections' weights as one ``[sum of out, in]``."""
    if len(projections) == 1:
        return projections[0].weight.detach()
    return torch.cat([p.weight.detach() for p in projections])


def share(projections: tuple[torch.nn.Linear, ...], weight: torch.Tensor) -> None:
    """Make the projections' weights views of ``weight``, which :func:`fuse` made of them."""
    pieces = weight.split([p.out_features for p in projections])
    for projection, piece in zip(projections, pieces, strict=True):
        projection.weight.data = piece
