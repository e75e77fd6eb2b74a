"""A decoder's layers on a CPU: oneDNN's matrix products, with :mod:`.kernels` between them.

The same arithmetic as the eager :class:`.decoder.DecoderLayer`, which stays the reference and runs
where this cannot: on a GPU, where Numba or the processor does not do, or for very wide passes
(prompts), which PyTorch spreads over all cores. Sums are ordered otherwise than PyTorch orders
them, so the last bits differ from the eager ones; among passes of any width and shape they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..interrupts import interrupt_after
from .blocks import multiply
from .decoder import DecoderLayer, KVCache, rms_norm
from .jobs import like_of
from .linear import Linear
from .one_call import WholePass
from .reads import LANES, PassRows, Reads, hide, lanes

PassKind = Literal["compiled", "eager"]

MAX_ROWS = 64  # wider passes are faster eagerly, unless their bits must be those of narrower ones

# Largest difference from the eager layer that is accepted, in standard deviations of its output.
MAX_GAP: dict[torch.dtype, float] = {torch.float32: 1e-4, torch.bfloat16: 0.1}


class LayerAddresses(NamedTuple):
    """Where a layer's norms and biases lie, 0 for none."""

    attention_norm: int
    qkv_bias: int
    q_norm: int
    k_norm: int
    mlp_norm: int


class _Pass:
    """Buffers of one pass, and its steps; shapes as in :mod:`.kernels`."""

    def __init__(self, layers: CompiledLayers, rows_in: PassRows):
        x, cos, sin, cache, start, reads = rows_in
        first = layers.layers[0]
        s = first.shape
        self.of, self.x, self.cache, self.reads = layers, x, cache, reads
        self.n, self.size, self.inner = len(x), x.shape[1], first.gate_up.out_features // 2
        rows = s.heads // s.kv_heads * self.n
        self.width = lanes(rows)
        self.normed, self.gated = torch.empty_like(x), x.new_empty(self.n, self.inner)
        self.attended = x.new_empty(self.n, s.heads * s.head_dim)
        self.q = x.new_empty(1, s.kv_heads, rows, s.head_dim)
        self.rope = cos.contiguous(), sin.contiguous()
        hidden = reads.hidden
        self.hidden = torch.zeros(reads.end - reads.tail, self.width) if hidden is None else hidden
        floats = layers.kernels.scratch_floats(reads.end - reads.first, self.width, s.head_dim)
        floats += (s.head_dim + 3) * self.width
        self.scratch = torch.empty(floats + LANES)
        self.scratch_at = -(-self.scratch.data_ptr() // 64) * 64
        self.store = (
            self.n,
            s.heads,
            s.kv_heads,
            s.head_dim,
            cache.capacity,
            start,
            0,
            self.n,
            layers.zero,
        )
        self.read = (
            self.scratch_at, self.n, s.heads, s.kv_heads, s.head_dim, cache.capacity,
            reads.first, reads.tail, reads.end, self.width, s.head_dim**-0.5, layers.zero,
        )  # fmt: skip
        self.x_at, self.normed_at = x.data_ptr(), self.normed.data_ptr()
        self.q_at, self.attended_at = self.q.data_ptr(), self.attended.data_ptr()
        self.gated_at, self.hidden_at = self.gated.data_ptr(), self.hidden.data_ptr()
        self.rope_at = tuple(t.data_ptr() for t in self.rope)
        self.keys_at, self.values_at = cache.keys.data_ptr(), cache.values.data_ptr()
        self.layer_bytes = cache.keys.stride(0) * cache.keys.element_size()

    def norm(self, delta: Tensor | None, weight: int) -> None:
        """``x += delta``, and its norm in ``normed``."""
        at, of = 0 if delta is None else delta.data_ptr(), self.of
        of.kernels.add_norm(
            self.x_at, at, weight, self.normed_at, self.n, self.size, of.eps, of.zero
        )

    def attention(self, layer: DecoderLayer, at: LayerAddresses) -> Tensor:
        """What the layer's attention adds to ``x``, from ``normed``."""
        k, skip = self.of.kernels, layer.index * self.layer_bytes
        keys_at, values_at = self.keys_at + skip, self.values_at + skip
        qkv = self.of.product(self.normed, layer.qkv)
        k.rotate_store(
            qkv.data_ptr(), at.qkv_bias, at.q_norm, at.k_norm, self.of.eps, *self.rope_at,
            self.q_at, keys_at, values_at, *self.store,
        )  # fmt: skip
        far_at = lse_at = 0
        if self.reads.far_end:
            far, lse = _read_far(self.q, self.cache, layer.index, self.reads)
            far_at, lse_at = far.data_ptr(), lse.data_ptr()
        k.attend(
            self.q_at, keys_at, values_at, self.attended_at, self.hidden_at, far_at, lse_at,
            *self.read,
        )  # fmt: skip
        return self.of.product(self.attended, layer.out)

    def mlp(self, layer: DecoderLayer) -> Tensor:
        """What the layer's MLP adds to ``x``, from ``normed``."""
        gate_up = self.of.product(self.normed, layer.gate_up)
        self.of.kernels.silu_multiply(
            gate_up.data_ptr(), self.gated_at, self.n, self.inner, 0, self.inner, self.of.zero
        )
        return self.of.product(self.gated, layer.down)


class CompiledLayers:
    """The layers and the final norm of one model, ready to run; see :func:`compile_layers`."""

    def __init__(self, layers: Sequence[DecoderLayer], final_norm: Tensor, kernels: ModuleType):
        self.kernels, self.layers, self.eps = kernels, list(layers), layers[0].shape.eps
        self.zero = like_of(final_norm.dtype)
        self.final_norm = final_norm
        linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
        # its only overload, without looking for it in every call
        self._linear = None if linear is None else linear.default
        self._addresses = [
            LayerAddresses(
                *(
                    0 if t is None else t.data_ptr()
                    for t in (l.attention_norm, l.qkv_bias, l.q_norm, l.k_norm, l.mlp_norm)
                )
            )
            for l in layers
        ]
        self._whole = (
            WholePass(self.layers, final_norm) if WholePass.possible(self.layers) else None
        )

    @property
    def far_step(self) -> int:
        """The slots of a chunk in which far slots are read; 0 where PyTorch's kernel reads them."""
        return 0 if self._whole is None else self._whole.chunk

    def product(self, x: Tensor, by: Linear) -> Tensor:
        """As ``by(x)``, for ``x [n, in]``."""
        if by.blocks is not None:
            return multiply(x, by.blocks)
        if by.weight is not None and (by.packed is None or len(x) == 1):
            return F.linear(x, by.weight)
        assert self._linear is not None
        return self._linear(x, by.packed, None, "none", [], "")

    @torch.no_grad()
    def __call__(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: KVCache,
        start: int,
        reads: Reads,
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """One pass.

        Args:
            x: ``[n, H]`` embedded rows, overwritten.
            cos, sin: ``[n, 1, D]`` or ``[n, D]``, as for :class:`.decoder.DecoderLayer`.
            start: the slot of the first row; the rows' keys and values are stored from there on.
            taps: layers whose outputs are wanted.

        Returns:
            Rows ``[n, H]`` after the final norm, and the taps side by side ``[n, len(taps) * H]``,
            or None without any.
        """
        rows = PassRows(x.contiguous(), cos, sin, cache, start, reads)
        if self._whole is not None:
            return self._whole(rows, taps)
        one = _Pass(self, rows)
        delta: Tensor | None = None
        outputs: dict[int, Tensor] = {}
        for layer, at in zip(self.layers, self._addresses, strict=True):
            one.norm(delta, at.attention_norm)
            if layer.index - 1 in taps:
                outputs[layer.index - 1] = one.x.clone()
            one.norm(one.attention(layer, at), at.mlp_norm)
            delta = one.mlp(layer)
        one.norm(delta, self.final_norm.data_ptr())
        outputs[len(self.layers) - 1] = one.x
        return one.normed, torch.cat([outputs[i] for i in taps], -1) if taps else None

    def __deepcopy__(self, memo: dict) -> CompiledLayers:
        """Itself, as :class:`.linear.Linear`."""
        return self


def _read_far(q: Tensor, cache: KVCache, layer: int, reads: Reads) -> tuple[Tensor, Tensor]:
    """What queries ``q [1, Hkv, G * n, D]`` read before ``reads.far_end``, and its log-sum-exp."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q,
        cache.keys[None, layer, :, : reads.far_end],
        cache.values[None, layer, :, : reads.far_end],
        0.0,
        False,
        attn_mask=reads.far,
    )
    lse = lse.to(torch.float32)
    if reads.no_far is not None:
        lse = lse.masked_fill(reads.no_far, float("-inf"))
    return out.contiguous(), lse.contiguous()


def compile_layers(layers: Sequence[DecoderLayer], final_norm: Tensor) -> CompiledLayers | None:
    """The same layers with compiled code between their products; None where they run eagerly: on a
    GPU, in a dtype without kernels, where Numba is absent or its code disagrees with the eager
    layer.
    """
    if final_norm.device.type != "cpu" or final_norm.dtype not in MAX_GAP or not layers:
        return None
    try:
        from . import kernels

        if not kernels.has_fma() or layers[0].shape.head_dim % 2:
            return None
        if any(layer.out_bias is not None for layer in layers):
            return None
        compiled = CompiledLayers(layers, final_norm, kernels)
        with interrupt_after():  # every kernel is compiled here
            return compiled if _agrees(compiled, layers[:1], final_norm) else None
    except Exception:  # a Numba without this processor, a cache folder that cannot be written, ...
        return None


@torch.no_grad()
def _agrees(compiled: CompiledLayers, layers: Sequence[DecoderLayer], final_norm: Tensor) -> bool:
    """Whether one layer's rows, a small tree behind a context, come close to the eager layer's."""
    one = CompiledLayers(layers, final_norm, compiled.kernels)
    shape, dtype, start, n = layers[0].shape, final_norm.dtype, 5, 3
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    cache = KVCache(1, shape.kv_heads, 16, shape.head_dim, dtype, final_norm.device)
    cache.keys, cache.values = draw(*cache.keys.shape), draw(*cache.values.shape)
    x, cos, sin = draw(n, layers[0].qkv.in_features), *draw(2, n, 1, shape.head_dim)
    seen = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    group = shape.heads // shape.kv_heads
    whole = F.pad(seen, (start, 0), value=True).repeat(group, 1)

    def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = (t[None, :, : start + n] for t in cache.write(0, start, k, v))
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=whole)

    eager = layers[0](x, cos, sin, attend)
    wanted = torch.cat((rms_norm(eager, final_norm, shape.eps), eager), -1).float()
    reads = Reads(0, start, start + n, hide(seen, group))
    hidden, taps = one(x.clone(), cos, sin, cache, start, reads, (layers[0].index,))
    assert taps is not None
    got = torch.cat((hidden, taps), -1).float()
    return bool(((got - wanted).abs().max() / wanted.std()) < MAX_GAP[dtype])
