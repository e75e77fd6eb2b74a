"""Whether passes of the general step compute what transformers' own forward pass does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import UserError, first_line
from ..check_target import MAX_GAP_HALF, MAX_GAP_PART
from .target import GeneralTarget

# Of a row of logits, in its standard deviations: in fp32 only sums differ in their order.
MAX_GAP_FLOAT32 = 0.01
TOKENS = 48
TEXT = (
    "A train leaves the station at 9:40 and travels 120 km in 1.5 hours; how fast is it? First,"
    " divide the distance by the time:\n\ndef speed(km: float, hours: float) -> float:\n    return"
    " km / hours  # 80 km/h\n\nNext, the second train leaves an hour later and is twice as fast."
)


def text_ids(tokenizer: Any, target: GeneralTarget) -> list[int]:
    """The first tokens of a real text; arbitrary ones where a tokenizer has no words for it."""
    ids = [i for i in tokenizer(TEXT)["input_ids"] if i < target.vocab_size]
    if len(set(ids)) < TOKENS // 4:
        ids = [(7 * i + 11) % (target.vocab_size - 1) for i in range(TOKENS)]
    return ids[: min(TOKENS, target.max_positions)]


@torch.inference_mode()
def own_logits(target: GeneralTarget, ids: list[int]) -> torch.Tensor:
    """``[n, V]``: the model's own forward pass with its own attention and no cache. To be asked
    before the products are ours.
    """
    given = torch.tensor([ids], device=target.device)
    with _in_words(target):
        return target.model(input_ids=given, use_cache=False).logits[0]


@contextmanager
def _in_words(target: GeneralTarget) -> Iterator[None]:
    """Whatever code of any family raises where it runs in a way that it may not expect, in a
    sentence.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = first_line(error).partition(". ")[0]
        raise UserError(
            f"Targets of type “{target.config.model_type}” cannot verify drafts"
            f" ({type(error).__name__}: {why}); choose another target."
        ) from None


@torch.inference_mode()
def check_general(target: GeneralTarget, ids: list[int], theirs: torch.Tensor) -> float:
    """Compare one pass over ``ids`` row by row with ``theirs [n, V]``, each of its attentions in
    fp32 with the model's own, and a prompt and a verify pass with the last row.

    Returns:
        The largest difference of a logit in standard deviations of its row, of the worst row in
        fp32, of the middle one in half precision.

    Raises:
        UserError: something is off by more than it may be, or the model cannot run so.
    """
    with _in_words(target):
        ours = _passes(target, ids)
    theirs = torch.cat([theirs, theirs[-1:], theirs[-1:]]).float()
    gaps = (ours.float() - theirs).abs().amax(-1) / theirs.std(-1).clamp_(min=1e-6)
    # in half precision rounding lets a row here and there choose another expert
    single = target.dtype == torch.float32
    gap = float(gaps.max() if single else gaps.median())
    if not gap < (MAX_GAP_FLOAT32 if single else MAX_GAP_HALF):
        raise _off(target, "its logits are", gap)
    return gap


def _passes(target: GeneralTarget, ids: list[int]) -> torch.Tensor:
    """Logits ``[n + 2, V]``: all rows of one pass, then the last again, read as a prompt, and in a
    verify pass.
    """
    n = len(ids)
    cache = target.new_cache(n + 16)

    def watch(
        module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: Any, out: Any, more: Any
    ) -> None:
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            return
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -torch.inf)
        given = {**more, "dropout": 0.0}
        theirs = eager(module, q.float(), k.float(), v.float(), mask, scaling=scaling, **given)[0]
        rounding = torch.finfo(out.dtype).eps * theirs.abs()  # ours is rounded once at the end
        off = ((out.float() - theirs).abs() - rounding).amax() / theirs.std().clamp_(min=1e-6)
        if not off <= MAX_GAP_PART:
            raise _off(target, "one of its attentions is", float(off))

    positions = torch.arange(n)
    seen = torch.ones(n, n, dtype=torch.bool).tril_()
    rows, _ = target.run(cache, ids, positions, seen, watch=watch)
    cache = target.new_cache(n + 16)
    read, _ = target.prefill(cache, ids)
    cache.rollback(n - 1)
    return torch.cat([rows, read, target.verify(cache, ids[-1], [], [], 16)[0]])


def _off(target: GeneralTarget, what: str, gap: float) -> UserError:
    return UserError(
        f"Passes over a tree of drafts do not compute what this target ({target.config.model_type})"
        f" does ({what} off by {gap:.2g} standard deviations); choose another target."
    )
