"""All decoder layers of a CPU pass in one TorchScript call.

A quarter of an eager pass over a small model is Python and dispatch between operators. Here the
operators of :class:`.decoder.DecoderLayer` and of the pass's attention run in the same order
without Python between them, so the bits are the same (tested, and compared at load). One function
serves every width, length and model; no compiler is needed on the user's machine.

``torch.jit.script`` is deprecated and may be absent one day; then :func:`script_layers` gives None
and the eager layers run, which also stay the reference.

TorchScript reads the source of these functions: they keep to the part of Python that it knows, and
their annotations are objects (no ``from __future__ import annotations``). Shapes as in
:mod:`.decoder`.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .decoder import DecoderLayer, KVCache, rms_norm, rotate, rows_of_heads

PassKind = Literal["scripted", "eager"]


class LayerWeights(NamedTuple):
    """All layers' weights, in lists. Product j of layer i (q, k and v; out; gate and up; down) is
    at ``4 * i + j``, as in :class:`.linear.Linear`: ``packed``, or ``plain`` for one row in fp32.
    """

    packed: list[Tensor | None]
    plain: list[Tensor | None]
    qkv_bias: list[Tensor | None]
    q_norm: list[Tensor | None]
    k_norm: list[Tensor | None]
    attention_norm: list[Tensor]
    mlp_norm: list[Tensor]
    final_norm: Tensor
    heads: int
    kv_heads: int
    eps: float


class AttentionInputs(NamedTuple):
    """Who sees whom in one pass, as tensors: what ``engine.attention`` works with.

    Attributes:
        first, end: the slots read, without ``end`` (of layout-invariant attention those that are
            summed in float64).
        mask: additive or bool ``[G * n, slots read]``, None where every row sees all of them.
        invariant: whether it is layout-invariant attention; the fields below are only for that,
            where ``mask [G * n, end - first]`` is float64.
        far_end: slots before it are the far part, seen through ``far``; ``no_far [G * n]`` marks
            rows without one.
        scale: of the scores, one element in float64.
    """

    end: int
    mask: Tensor | None = None
    invariant: bool = False
    first: int = 0
    far: Tensor | None = None
    far_end: int = 0
    no_far: Tensor | None = None
    scale: Tensor | None = None


def _linear(x: Tensor, packed: Tensor | None, plain: Tensor | None) -> Tensor:
    """As :class:`.linear.Linear`, for ``x [n, in]``."""
    if plain is not None and (packed is None or x.shape[0] == 1):
        return F.linear(x, plain)
    assert packed is not None
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _layout_invariant(q: Tensor, keys: Tensor, values: Tensor, seen: AttentionInputs) -> Tensor:
    """As ``engine.attention.LayoutInvariantAttention``: ``q [1, Hkv, G * n, D]``, ``keys, values
    [Hkv, capacity, D]``.
    """
    near, scale, far = seen.mask, seen.scale, seen.far
    assert near is not None and scale is not None
    k = keys[:, seen.first : seen.end].to(torch.float64)
    v = values[:, seen.first : seen.end].to(torch.float64)
    scores = torch.baddbmm(near[None], q[0] * scale, k.transpose(-1, -2))
    if far is None:
        return torch.bmm(scores.softmax(-1), v).to(q.dtype)[None]
    out, lse = torch._scaled_dot_product_flash_attention_for_cpu(
        q, keys[None, :, : seen.far_end], values[None, :, : seen.far_end], 0.0, False, attn_mask=far
    )
    lse = lse.to(torch.float32)
    no_far = seen.no_far
    if no_far is not None:
        out = out.masked_fill(no_far[:, None], 0.0)
        lse = lse.masked_fill(no_far, float("-inf"))
    p = torch.cat((scores, lse[0, :, :, None]), -1).softmax(-1)
    return torch.addcmul(torch.bmm(p[..., :-1], v), out[0], p[..., -1:]).to(q.dtype)[None]


def _layers(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    weights: LayerWeights,
    seen: AttentionInputs,
    taps: list[int],
) -> tuple[Tensor, list[Tensor]]:
    """Rows ``[n, H]`` after the final norm, and the outputs of the layers ``taps`` in the layers'
    order; see :meth:`ScriptedLayers.__call__`.
    """
    outputs: list[Tensor] = []
    n = x.shape[0]
    heads, kv_heads, eps = weights.heads, weights.kv_heads, weights.eps
    for i in range(len(weights.attention_norm)):
        # 1) Queries, keys and values; the cache.
        normed = rms_norm(x, weights.attention_norm[i], eps)
        qkv = _linear(normed, weights.packed[4 * i], weights.plain[4 * i])
        bias, q_norm, k_norm = weights.qkv_bias[i], weights.q_norm[i], weights.k_norm[i]
        if bias is not None:
            qkv = qkv + bias
        qkv = qkv.view(n, heads + 2 * kv_heads, -1)
        qk = qkv[:, : heads + kv_heads]
        if q_norm is not None and k_norm is not None:
            normed_q = rms_norm(qk[:, :heads], q_norm, eps)
            qk = torch.cat((normed_q, rms_norm(qk[:, heads:], k_norm, eps)), 1)
        qk = rotate(qk, cos, sin)
        layer_keys, layer_values = keys[i], values[i]
        layer_keys[:, start : start + n].copy_(qk[:, heads:].transpose(0, 1))
        layer_values[:, start : start + n].copy_(qkv[:, heads + kv_heads :].transpose(0, 1))
        # 2) Attention.
        q = qk[:, :heads].transpose(0, 1).reshape(1, kv_heads, heads // kv_heads * n, qk.shape[-1])
        if seen.invariant:
            attended = _layout_invariant(q, layer_keys, layer_values, seen)
        else:
            attended = F.scaled_dot_product_attention(
                q,
                layer_keys[None, :, seen.first : seen.end],
                layer_values[None, :, seen.first : seen.end],
                attn_mask=seen.mask,
            )
        out = rows_of_heads(attended, n)
        x = x + _linear(out, weights.packed[4 * i + 1], weights.plain[4 * i + 1])
        # 3) MLP.
        normed = rms_norm(x, weights.mlp_norm[i], eps)
        gate_up = _linear(normed, weights.packed[4 * i + 2], weights.plain[4 * i + 2])
        gate, up = gate_up.chunk(2, -1)
        inner = F.silu(gate) * up
        x = x + _linear(inner, weights.packed[4 * i + 3], weights.plain[4 * i + 3])
        if i in taps:
            outputs.append(x)
    return rms_norm(x, weights.final_norm, eps), outputs


@functools.cache
def _compiled() -> Callable | None:
    """:func:`_layers` in TorchScript, once a process; None where this torch or Python has none."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*torch\.jit\.script", DeprecationWarning)
            made = torch.jit.script(_layers)
        # PYTORCH_JIT=0 gives the function back as it is
        return made if isinstance(made, torch.jit.ScriptFunction) else None
    except Exception:  # whatever a future torch says, the eager layers are there
        return None


class ScriptedLayers:
    """The layers and the final norm of one model, ready to run; see :func:`script_layers`."""

    def __init__(self, compiled: Callable, weights: LayerWeights):
        self._compiled, self._weights = compiled, weights

    @torch.no_grad()
    def __call__(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: KVCache,
        start: int,
        seen: AttentionInputs,
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """One pass, the bits of the eager layers.

        Args:
            x: ``[n, H]`` embedded rows.
            cos, sin: as for :class:`.decoder.DecoderLayer`.
            start: the slot of the first row; the rows' keys and values are stored from there on.
            taps: layers whose outputs are wanted.

        Returns:
            Rows ``[n, H]`` after the final norm, and the taps side by side ``[n, len(taps) * H]``,
            or None without any.
        """
        hidden, outputs = self._compiled(
            x, cos, sin, cache.keys, cache.values, start, self._weights, seen, list(taps)
        )
        if not taps:
            return hidden, None
        order = sorted(set(taps))
        return hidden, torch.cat([outputs[order.index(i)] for i in taps], -1)

    def __deepcopy__(self, memo: dict) -> "ScriptedLayers":
        """Itself, as :class:`.linear.Linear`."""
        return self


def script_layers(layers: Sequence[DecoderLayer], final_norm: Tensor) -> ScriptedLayers | None:
    """The same layers in one TorchScript call; None where they run eagerly: on a GPU, or where
    there is no TorchScript.
    """
    compiled = _compiled() if final_norm.device.type == "cpu" and layers else None
    if compiled is None:
        return None
    products = [p for l in layers for p in (l.qkv, l.out, l.gate_up, l.down)]
    shape = layers[0].shape
    weights = LayerWeights(
        packed=[p.packed for p in products],
        plain=[p.weight for p in products],
        qkv_bias=[l.qkv_bias for l in layers],
        q_norm=[l.q_norm for l in layers],
        k_norm=[l.k_norm for l in layers],
        attention_norm=[l.attention_norm for l in layers],
        mlp_norm=[l.mlp_norm for l in layers],
        final_norm=final_norm,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        eps=shape.eps,
    )
    return ScriptedLayers(compiled, weights)
