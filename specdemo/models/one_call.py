"""The layers of a model in one call of compiled code, where all their products are blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .blocks import pair_sums
from .decoder import DecoderLayer
from .jobs import run
from .reads import LANES, PassRows, Reads, lanes

TAP = 5  # of a layer's numbers in whole_pass: where its output goes


class WholePass:
    """All layers in one call that comes back when everything is done; see :mod:`.whole_pass`."""

    def __init__(self, layers: Sequence[DecoderLayer], final_norm: Tensor):
        from .whole_pass import CHUNK

        self.chunk = CHUNK
        self._shape, self._layers, self._final_norm = layers[0].shape, len(layers), final_norm
        self._rows: list[int] = []
        self._whole = layers[0].down.blocks is not None and layers[0].down.blocks.whole
        for layer in layers:
            norms = (layer.attention_norm, layer.qkv_bias, layer.q_norm, layer.k_norm)
            self._rows += [0 if t is None else t.data_ptr() for t in (*norms, layer.mlp_norm)]
            self._rows.append(-1)  # TAP
            for product in (layer.qkv, layer.out, layer.gate_up, layer.down):
                assert product.blocks is not None
                self._rows += product.blocks.row
        self._inner = layers[0].gate_up.out_features // 2

    @staticmethod
    def possible(layers: Sequence[DecoderLayer]) -> bool:
        products = [p for l in layers for p in (l.qkv, l.out, l.gate_up, l.down)]
        halves = {l.down.in_features % LANES for l in layers}
        # weights of one sort, as code is compiled for one
        sorts = {None if p.blocks is None else p.blocks.whole for p in products}
        return halves == {0} and len(sorts) == 1 and None not in sorts

    def __call__(self, rows: PassRows, taps: Sequence[int] = ()) -> tuple[Tensor, Tensor | None]:
        """As :meth:`.compiled.CompiledLayers.__call__`."""
        from .whole_pass import LAYER_FIELDS, STAGES

        x, cos, sin, cache, start, reads = rows
        s, n, size, inner = self._shape, len(x), x.shape[1], self._inner
        layers, lanes_of_all = self._layers, lanes(s.heads // s.kv_heads * n)
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
            "final_norm": self._final_norm.data_ptr(), "tap_step": len(taps) * size,
            "taps_at": 0 if features is None else features.data_ptr(),
        }  # fmt: skip
        far, scratch, parts = self._far(reads, lanes_of_all)
        run(
            fields | places | far,
            STAGES * layers + 2,
            max(scratch, pair_sums(n, max(size, attended, inner))),
            x.dtype,
            self._whole,
            torch.get_num_threads(),
            (x, normed, features, memory, hidden, cos, sin, numbers, cache.stored(), parts),
            s.eps,
            s.head_dim**-0.5,
        )  # fmt: skip
        return normed, features

    def _far(self, reads: Reads, lanes_of_all: int) -> tuple[dict[str, int], int, object]:
        """What the attention of far slots is told, the floats of scratch memory that attention
        takes of each thread, and what must stay in memory.
        """
        from .kernels import scratch_floats
        from .whole_pass import WIDE

        dim, slots = self._shape.head_dim, reads.end - reads.first
        if reads.chunks is None:
            return {}, scratch_floats(slots, LANES, dim) + (dim + 3) * LANES, None
        most = int(reads.chunks.max())
        parts = torch.empty((most + 1) * self._shape.kv_heads * lanes_of_all * (dim + 3))
        fields = {
            "far_chunks": most, "chunks_at": reads.chunks.data_ptr(), "parts_at": parts.data_ptr(),
        }  # fmt: skip
        return fields, scratch_floats(max(slots, self.chunk), WIDE, dim), (reads.chunks, parts)


def _places(x: Tensor, widths: dict[str, int]) -> tuple[Tensor, dict[str, int]]:
    """One piece of memory for rows beside ``x [n, H]``, and where in it those of each of ``widths``
    begin, on cache lines of their own.
    """
    item, room = x.element_size(), [-(-len(x) * width // 32) * 32 for width in widths.values()]
    memory = x.new_empty(sum(room) + 32)
    begin = -(-memory.data_ptr() // 64) * 64
    at = {name: begin + item * sum(room[:i]) for i, name in enumerate(widths)}
    return memory, at
