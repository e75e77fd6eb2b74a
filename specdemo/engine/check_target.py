"""Whether our passes compute what a Hugging Face model computes: part by part in single precision,
where there is nearly no rounding to hide in, then the whole in the dtype that races use.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from ..errors import UserError
from ..models.decoder import DecoderLayer, rms_norm
from .target import Target

TOKENS, FAR = 12, 2000  # tokens that are read, from position 0 and from this one on
HEAD_ROWS = 8192  # of the head in single precision: what scales or bends logits does so with all
WIDTH = 16  # of the verify pass
# Rows in which some values are 10,000 times the others (SmolLM2-135M has them) are rounded by more
# than a layer adds to the others: of a value in fp32, so much is no difference.
ROUNDING = 1e-6
TINY = 1e-6  # a row in which all values are the same deviates by so much

# Largest differences accepted, in standard deviations of the row they are in: of a part in fp32
# (SmolLM2-135M: 2e-5; attention scores 10 % larger in one of its layers: 0.03 at least), and of the
# whole pass in fp32 and in half precision, which needs room for rounding (SmolLM2-135M: 0.27).
MAX_GAP_PART = 1e-3
MAX_GAP_FLOAT32 = 0.1
MAX_GAP_HALF = 0.7
# Of a layer with weights of 4 bits, beside the same weights in fp32: rows are in half precision.
MAX_GAP_BITS, HALF_ROUNDING = 0.1, 2**-7


@torch.no_grad()
def check_against(target: Target, model: PreTrainedModel) -> float:
    """Compare ``target`` with ``model``: its embedding, each of its layers and its head alone, on
    the inputs that they get in a forward pass of ``model``, and its passes as a whole.

    Returns:
        The largest difference of a logit of whole passes, in standard deviations of the model's.

    Raises:
        UserError: a part is off by :data:`MAX_GAP_PART` or more, or whole passes by
            :data:`MAX_GAP_FLOAT32` or, in half precision, :data:`MAX_GAP_HALF`.
    """
    ids = [(7 * i + 11) % (target.vocab_size - 1) for i in range(TOKENS)]
    far = min(FAR, max(target.max_positions - TOKENS, 0))
    positions = torch.tensor([[0], [far]]) + torch.arange(TOKENS)
    inputs, last, logits = _forward(target, model, ids, positions)
    embedded = target.embedding[torch.tensor(ids, device=target.device)]
    _accept(target, "its embedding", inputs[0][0], embedded.expand_as(inputs[0][0]), MAX_GAP_PART)
    layers = zip(model.model.layers, inputs, strict=True)
    for index, (layer, (rows, more)) in enumerate(layers):
        theirs, ours = _layer_outputs(target, index, layer, rows, more, positions)
        rounding = ROUNDING * torch.maximum(rows.float().abs(), theirs.abs())
        _accept(target, f"its layer {index + 1}", theirs, ours, MAX_GAP_PART, rounding)
        if target.four_bits:
            added = _four_bit_outputs(target, index, rows, positions)
            half = HALF_ROUNDING * torch.maximum(rows.float().abs(), theirs.abs())
            name = f"its layer {index + 1} with weights of 4 bits"
            _accept(target, name, theirs, added, MAX_GAP_BITS, half)
    _accept(target, "its head", *_head_outputs(target, model, last), MAX_GAP_PART)
    most = MAX_GAP_FLOAT32 if target.dtype == torch.float32 else MAX_GAP_HALF
    whole = _whole_passes(target, ids)
    return _accept(target, "the whole", logits[:1, -1].expand_as(whole), whole, most)


def _accept(
    target: Target,
    part: str,
    theirs: Tensor,
    ours: Tensor,
    most: float,
    rounding: Tensor | None = None,
) -> float:
    """The largest gap over rows ``[..., n]``, each in its own standard deviations.

    Args:
        rounding: ``[..., n]``, how much of each difference is no gap.

    Raises:
        UserError: it is not below ``most``.
    """
    theirs, ours = theirs.float(), ours.float()
    off = (ours - theirs).abs() - (0.0 if rounding is None else rounding)
    gap = (off.clamp_(min=0).amax(-1) / theirs.std(-1).clamp_(min=TINY)).max().item()
    if not gap < most:  # nor where it is no number
        raise UserError(
            f"This target ({target.config.model_type}) does not compute what a Llama-type model"
            f" does ({part} is off by {gap:.2g} standard deviations); choose another target."
        )
    return gap


def _forward(
    target: Target, model: Any, ids: list[int], positions: Tensor
) -> tuple[list[tuple[Tensor, dict[str, Any]]], Tensor, Tensor]:
    """The model's own pass over ``ids`` at each row of ``positions [B, n]``: the rows ``[B, n, H]``
    and other arguments that each layer got, what the last one returned, and logits ``[B, n, V]``.
    """
    inputs: list[tuple[Tensor, dict[str, Any]]] = []
    outputs: list[Any] = []

    def before(_: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        kwargs = dict(kwargs)
        rows = args[0] if args else kwargs.pop("hidden_states")
        inputs.append((rows, kwargs))

    layers = list(model.model.layers)
    hooks = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    hooks.append(layers[-1].register_forward_hook(lambda *call: outputs.append(call[-1])))
    try:
        logits = model(
            input_ids=torch.tensor(ids, device=target.device).expand(len(positions), -1),
            position_ids=positions.to(target.device),
            use_cache=False,
        ).logits
    finally:
        for hook in hooks:
            hook.remove()
    return inputs, _rows(outputs[0]), logits


def _four_bit_outputs(target: Target, index: int, rows: Tensor, positions: Tensor) -> Tensor:
    """What the layer that races use adds to ``rows [B, n, H]``."""
    n, group = rows.shape[1], target.shape.heads // target.shape.kv_heads
    seen = torch.ones(n, n, dtype=torch.bool).tril_().repeat(group, 1)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k[None], v[None], attn_mask=seen)

    added = []
    for each, at in zip(rows.to(target.dtype), positions, strict=True):
        cos, sin = (table[at][:, None] for table in (target.cos, target.sin))
        added.append(target.layers[index](each, cos, sin, attend).float() - each.float())
    return torch.stack(added)


def _layer_outputs(
    target: Target,
    index: int,
    layer: Any,
    rows: Tensor,
    more: dict[str, Any],
    positions: Tensor,
) -> tuple[Tensor, Tensor]:
    """What the model's layer and ours add to ``rows [B, n, H]``, both in fp32."""
    x, shape = rows.float(), target.shape
    alone = _in_fp32(layer)
    theirs = _rows(alone(x, **_upcast(more)))
    ours = DecoderLayer.from_module(alone, index, shape, target.device, torch.float32)
    n, group = x.shape[1], shape.heads // shape.kv_heads
    seen = torch.ones(n, n, dtype=torch.bool, device=x.device).tril_().repeat(group, 1)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k[None], v[None], attn_mask=seen)

    added = []
    for each, at in zip(x, positions.to(target.device), strict=True):
        cos, sin = (table[at][:, None].float() for table in (target.cos, target.sin))
        added.append(ours(each, cos, sin, attend) - each)
    return theirs - x, torch.stack(added)


def _in_fp32(module: Any) -> Any:
    """A copy in fp32. Each weight is copied by itself, as it may be a view into a larger one."""
    copied: dict[int, Any] = {
        id(p): torch.nn.Parameter(p.detach().float().clone(), False) for p in module.parameters()
    }
    copied |= {id(b): b.float() if b.is_floating_point() else b for b in module.buffers()}
    return copy.deepcopy(module, copied)


def _head_outputs(target: Target, model: Any, last: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``[B, n, HEAD_ROWS]`` after rows ``last [B, n, H]`` of the last layer, in fp32: of the
    model with neither layers nor the rest of its head, and ours.
    """
    body, head = copy.copy(model.model), copy.copy(model.lm_head)
    norm = _in_fp32(body.norm)
    body._modules = {**body._modules, "layers": torch.nn.ModuleList(), "norm": norm}
    head._parameters = {
        name: None if p is None else torch.nn.Parameter(p[:HEAD_ROWS].float(), False)
        for name, p in head._parameters.items()
    }
    bare = copy.copy(model)
    bare._modules = {**bare._modules, "model": body, "lm_head": head}
    theirs = bare(inputs_embeds=last.float(), use_cache=False).logits
    normed = rms_norm(last.float(), target.final_norm.float(), target.shape.eps)
    return theirs, F.linear(normed, target.head_weight[:HEAD_ROWS].float())


def _whole_passes(target: Target, ids: list[int]) -> Tensor:
    """Logits ``[2, V]`` after ``ids``: read as a prompt, and the last of them by a verify pass."""
    cache = target.new_cache(len(ids) + WIDTH)
    read = target.prefill(cache, ids)[0]
    cache.rollback(len(ids) - 1)
    return torch.cat([read, target.verify(cache, ids[-1], [], [], WIDTH)[0]])


def _rows(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _upcast(value: Any) -> Any:
    """``value`` with every tensor of numbers in it in fp32."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple):
        return tuple(_upcast(one) for one in value)
    return {k: _upcast(v) for k, v in value.items()} if isinstance(value, dict) else value
