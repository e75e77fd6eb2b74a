"""Which token a drafter proposes, and the distribution q that it was drawn from.

Shapes: ``n`` positions, ``Vd`` the drafter's own vocabulary, which may be smaller than the target's
``V``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .base import Context


def choose_columns(logits: torch.Tensor, context: Context | None = None) -> torch.Tensor:
    """One column of every row of ``[..., Vd]`` logits: the argmax, or, given a context, one sampled
    at its temperature with its generator. Rows that are not numbers give any column, for
    ``top_candidates`` to find them.
    """
    if context is None or context.temperature <= 0:
        return logits.argmax(-1)
    probs = tempered(logits, context.temperature).reshape(-1, logits.shape[-1]).nan_to_num(1.0)
    where = probs.device if context.generator is None else context.generator.device
    return (
        torch.multinomial(probs.to(where), 1, generator=context.generator)
        .to(probs.device)
        .view(logits.shape[:-1])
    )


def proposal_probs(logits: torch.Tensor, temperature: float, columns: torch.Tensor) -> torch.Tensor:
    """q: the distribution ``[n, Vd]`` that :func:`choose_columns` drew ``columns [n]`` from;
    one-hot at temperature 0.
    """
    return tempered(logits, temperature) if temperature > 0 else one_hot(columns, logits)


def tempered(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """The softmax of ``logits / temperature``, where the quotient itself may overflow."""
    return ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)


def one_hot(columns: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``[n, Vd]`` with all mass on one column a row."""
    return torch.zeros_like(like).scatter_(-1, columns[..., None], 1.0)


def widen(probs: torch.Tensor, vocab_ids: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """``[n, Vd]`` over the drafter's vocabulary as ``[n, V]`` over the target's."""
    if vocab_ids is None:
        return torch.nn.functional.pad(probs, (0, vocab_size - probs.shape[-1]))
    out = probs.new_zeros(probs.shape[0], vocab_size)
    out[:, vocab_ids] = probs
    return out
