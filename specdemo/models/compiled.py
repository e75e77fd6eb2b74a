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

from .blocks import multiply, pair_sums
from .decoder import DecoderLayer, KVCache, rms_norm
from .jobs import like_of, run
from .linear import Linear

PassKind = Literal["compiled", "eager"]

LANES = 16  # as in kernels, which is imported only where it is used
TAP = 5  # of a layer's numbers in whole_pass: where its output goes
MAX_ROWS = 64  # wider passes are faster eagerly, unless their bits must be those of narrower ones

# Largest difference from the eager layer that is accepted, in standard deviations of its output.
MAX_GAP: dict[torch.dtype, float] = {torch.float32: 1e-4, torch.bfloat16: 0.1}


class Reads(NamedTuple):
    """What the rows of one pass read of the cache.

    Attributes:
        first, end: the slots read, without ``end``.
        tail: slots before it are seen by all rows.
        hidden: float32 ``[end - tail, lanes]`` from :func:`hide` for the slots from ``tail`` on;
            None: seen by all rows.
        far_end: where not 0, slots before it are read by PyTorch's flash kernel, with the additive
            mask ``far [G * n, far_end]``, and join the others by their log-sum-exp; ``no_far [G *
            n]`` marks queries that read nothing there.
    """

    first: int
    tail: int
    end: int
    hidden: Tensor | None = None
    far_end: int = 0
    far: Tensor | None = None
    no_far: Tensor | None = None


def lanes(rows: int) -> int:
    """Lanes of a vector loop over ``rows`` rows of all heads that share a key head."""
    return -(-rows // LANES) * LANES


def hide(seen: Tensor, group: int) -> Tensor:
    """``seen [n, slots]`` bool as numbers to add to scores: 0 or −inf, float32 ``[slots, lanes]``,
    for ``group`` query heads that share a key head.
    """
    n, slots = seen.shape
    hidden = torch.zeros(slots, lanes(group * n))
    columns = torch.zeros(slots, n).masked_fill_(~seen.T, float("-inf"))
    hidden[:, : group * n] = columns.repeat(1, group)
    return hidden


class LayerAddresses(NamedTuple):
    """Where a layer's norms and biases lie, 0 for none."""

    attention_norm: int
    qkv_bias: int
    q_norm: int
    k_norm: int
    mlp_norm: int


class _Pass:
    """Buffers of one pass, and its steps; shapes as in :mod:`.kernels`."""

    def __init__(
        self,
        layers: CompiledLayers,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: KVCache,
        start: int,
        reads: Reads,
    ):
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
        self._whole = WholePass(self.layers) if WholePass.possible(self.layers) else None

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
        if self._whole is not None and not reads.far_end:
            return self._whole(self, x.contiguous(), cos, sin, cache, start, reads, taps)
        one = _Pass(self, x.contiguous(), cos, sin, cache, start, reads)
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


class WholePass:
    """All layers in one call that comes back when everything is done; see :mod:`.whole_pass`."""

    def __init__(self, layers: Sequence[DecoderLayer]):
        self._rows: list[int] = []
        for layer in layers:
            norms = (layer.attention_norm, layer.qkv_bias, layer.q_norm, layer.k_norm)
            self._rows += [0 if t is None else t.data_ptr() for t in (*norms, layer.mlp_norm)]
            self._rows.append(-1)  # TAP
            for product in (layer.qkv, layer.out, layer.gate_up, layer.down):
                assert product.blocks is not None
                self._rows += product.blocks.row
        self.inner = layers[0].gate_up.out_features // 2

    @staticmethod
    def possible(layers: Sequence[DecoderLayer]) -> bool:
        products = [p for l in layers for p in (l.qkv, l.out, l.gate_up, l.down)]
        halves = {l.down.in_features % LANES for l in layers}
        return halves == {0} and all(product.blocks is not None for product in products)

    def __call__(
        self,
        of: CompiledLayers,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: KVCache,
        start: int,
        reads: Reads,
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """As :meth:`CompiledLayers.__call__`."""
        from .whole_pass import LAYER_FIELDS, STAGES

        s, n, size, inner = of.layers[0].shape, len(x), x.shape[1], self.inner
        layers, lanes_of_all = len(of.layers), lanes(s.heads // s.kv_heads * n)
        attended = s.heads * s.head_dim
        qkv = attended + 2 * s.kv_heads * s.head_dim
        item, hidden = x.element_size(), reads.hidden
        if hidden is None:
            hidden = torch.zeros(reads.end - reads.tail, lanes_of_all)
        normed, cos, sin = torch.empty_like(x), cos.contiguous(), sin.contiguous()
        features = x.new_empty(n, len(taps) * size) if taps else None
        memory, places = _places(
            x,
            {
                "delta_at": size, "qkv_at": qkv, "q_at": attended, "attended_at": attended,
                "gate_up_at": 2 * inner, "gated_at": inner,
            },
        )  # fmt: skip
        table = list(self._rows)
        for place, layer in enumerate(taps):
            table[layer * LAYER_FIELDS + TAP] = place * size
        numbers = torch.tensor(table, dtype=torch.int64)
        fields = {
            "layers_at": numbers.data_ptr(), "layers": layers, "n": n, "size": size,
            "inner": inner, "heads": s.heads, "kv_heads": s.kv_heads, "dim": s.head_dim,
            "capacity": cache.capacity, "start": start, "first": reads.first, "tail": reads.tail,
            "end": reads.end, "lanes": lanes_of_all, "x_at": x.data_ptr(),
            "normed_at": normed.data_ptr(), "cos_at": cos.data_ptr(), "sin_at": sin.data_ptr(),
            "keys_at": cache.keys.data_ptr(), "values_at": cache.values.data_ptr(),
            "layer_bytes": cache.keys.stride(0) * item, "hidden_at": hidden.data_ptr(),
            "final_norm": of.final_norm.data_ptr(), "tap_step": len(taps) * size,
            "taps_at": 0 if features is None else features.data_ptr(),
        }  # fmt: skip
        floats = of.kernels.scratch_floats(reads.end - reads.first, LANES, s.head_dim)
        floats = max(floats, pair_sums(n, max(size, attended, inner)))
        run(
            fields | places,
            STAGES * layers + 2,
            floats,
            x.dtype,
            torch.get_num_threads(),
            (x, normed, features, memory, hidden, cos, sin, numbers, cache.keys, cache.values),
            of.eps,
            s.head_dim**-0.5,
        )
        return normed, features


def _places(x: Tensor, widths: dict[str, int]) -> tuple[Tensor, dict[str, int]]:
    """One piece of memory for rows beside ``x [n, H]``, and where in it those of each of ``widths``
    begin, on cache lines of their own.
    """
    item, room = x.element_size(), [-(-len(x) * width // 32) * 32 for width in widths.values()]
    memory = x.new_empty(sum(room) + 32)
    begin = -(-memory.data_ptr() // 64) * 64
    at = {name: begin + item * sum(room[:i]) for i, name in enumerate(widths)}
    return memory, at


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
