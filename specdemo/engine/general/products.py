"""Matrix products of transformers' own model whose rows do not depend on how many others a pass
has.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

from ...models.linear import Linear
from ...models.spread import hook_of, is_offloaded
from .attention import RUNNING

ROWS = 16  # of every product with a weight of an expert: how many choose it changes
MOST = 64  # a pass with more rows is a prompt, read once for both lanes


def use_row_products(model: nn.Module) -> None:
    """Every linear layer of ``model`` multiplies by :class:`Linear`; modules that keep matrices of
    their own, such as experts and routers, multiply in blocks of :data:`ROWS` rows. Layers of
    bitsandbytes keep their weights as they are stored and expand them in every product: their own
    products give a row other bits beside other rows.
    """
    for module in model.modules():
        if (expand := _stored_in_bits(module)) is not None:
            _replace(module, _expanding_product(module, expand))
        elif isinstance(module, Conv1D):
            if is_offloaded(module):
                _replace(module, _expanding_product(module, _weight_of(module, True)))
            else:
                _replace(module, _product(module.weight.T, module.bias))
        elif isinstance(module, nn.Linear):
            if is_offloaded(module):
                _replace(module, _expanding_product(module, _weight_of(module, False)))
            elif type(module).forward is nn.Linear.forward:
                _replace(module, _product(module.weight, module.bias))
        elif not isinstance(module, nn.Embedding) and any(
            weight.dim() > 1 for weight in module.parameters(recurse=False)
        ):
            _replace(module, _in_blocks(_forward_of(module)))


def _weight_of(module: Any, turned: bool) -> Callable[[], torch.Tensor]:
    """What gives the weight of an offloaded layer, which its hook has just brought."""
    return lambda: module.weight.T if turned else module.weight


def _stored_in_bits(module: Any) -> Callable[[], torch.Tensor] | None:
    """What gives the weight ``[out, in]`` of a bitsandbytes layer, expanded anew each time; None
    for any other layer.
    """
    weight: Any = getattr(module, "weight", None)
    if getattr(weight, "quant_state", None) is not None:
        expand = importlib.import_module("bitsandbytes.functional").dequantize_4bit
        return lambda: expand(weight.data, weight.quant_state)
    if type(module).__name__ == "Linear8bitLt":
        # kept by the weight until a pass of bitsandbytes' own moves them
        kept = weight if weight.SCB is not None else module.state
        return lambda: kept.CB * (kept.SCB[:, None] / 127)
    return None


def _expanding_product(module: Any, expand: Callable[[], torch.Tensor]) -> Callable:
    def forward(input: torch.Tensor) -> torch.Tensor:
        bias: torch.Tensor | None = module.bias
        weight = expand().to(input.dtype)
        running = RUNNING.get(None)
        if running is None or running.kind == "masked":
            return F.linear(input, weight, bias)
        with BlockProducts():
            out = F.linear(input, weight)
        return out if bias is None else out + bias

    return forward


def _replace(module: Any, forward: Callable) -> None:
    """Accelerate's hook, where there is one, stays around it."""
    if hook_of(module) is None:
        module.forward = forward
    else:
        module._old_forward = forward


def _forward_of(module: Any) -> Callable:
    return module.forward if hook_of(module) is None else module._old_forward


def _product(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable:
    product = Linear(weight)

    def forward(input: torch.Tensor) -> torch.Tensor:
        if not input.numel():
            return F.linear(input, weight, bias)
        return product(input) if bias is None else product(input) + bias

    return forward


def _in_blocks(inner: Callable) -> Callable:
    def forward(*args: Any, **kwargs: Any) -> Any:
        running = RUNNING.get(None)  # None: the model runs by itself
        if running is None or running.kind == "masked":
            return inner(*args, **kwargs)
        with BlockProducts():
            return inner(*args, **kwargs)

    return forward


class BlockProducts(TorchFunctionMode):
    """Products of rows with one matrix always take :data:`ROWS` rows, padded with zeros."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in PRODUCTS and not kwargs and len(args) > 1 and args[1].dim() == 2:
            rows = args[0].reshape(-1, args[0].shape[-1])
            if 0 < len(rows) <= MOST:
                n = len(rows)
                blocks = F.pad(rows, (0, 0, 0, -n % ROWS)).split(ROWS)
                out = torch.cat([func(block, *args[1:]) for block in blocks])[:n]
                return out.view(*args[0].shape[:-1], -1)
        return func(*args, **kwargs)


PRODUCTS = (F.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
