"""A diffusion network following one run: its context cache, its passes, and its logits as short lists of candidates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import Refusal
from ..events import Denoise
from .base import Context

MASK = -1  # the block networks' mark for a masked slot
WIDTH = 8  # candidates read at every position, recorded or not, so that looking changes nothing

Row = list[tuple[int, float]]  # candidates of one position: (target id, probability), best first


class Session:
    """Wraps one network of ``specdemo.models.block`` for the length of one run.

    Attributes:
        ms: smoothed milliseconds of one pass, context included, without recording.
    """

    def __init__(self, net: Any, device: Any = "cpu") -> None:
        self.net = net
        self.device = torch.device(device)
        self.layer_ids = tuple(net.layer_ids)
        self.weights = net.weights
        self.most = net.block_size - 1  # masks in one block
        self.ms = 0.0
        config = getattr(net, "config", None)
        self.never = _column(net.vocab_ids, getattr(config, "mask_token_id", None))

    def start(self, capacity: int) -> None:
        """Forget the last run; room for ``capacity`` positions."""
        self.cache = self.net.new_cache(capacity)

    def check_gamma(self, gamma: int, name: str = "gamma") -> int:
        """``gamma`` if one block of this network holds as many masks."""
        if gamma > self.most:
            raise Refusal(f"{name} = {gamma} is more than this drafter's block of {self.most} masks; choose {name} up to {self.most}.")
        return gamma

    def catch_up(self, context: Context) -> None:
        """Give the network the target's features of everything committed since the last call; several rounds may have passed."""
        features, start = context.take_features()
        if features.shape[0]:
            self.net.extend(self.cache, features, start)

    def logits(self, blocks: Sequence[Sequence[int]], anchor_position: int, first: int = 1, last: int | None = None) -> torch.Tensor:
        """One pass over blocks of equal width ``[anchor, tokens or MASK ...]``.

        Returns:
            ``[B, slots, Vd]`` float32 logits of the slots ``first`` to ``last`` (exclusive), over the network's own vocabulary; slot k speaks about
            position ``anchor_position + k``. The mask's own column is −inf: it is never proposed.
        """
        ids = torch.tensor(blocks, dtype=torch.int64, device=self.device)
        hidden = self.net.hidden(ids, anchor_position, self.cache)
        logits = self.net.logits(hidden[:, first:last]).float()
        if self.never is not None:
            logits[..., self.never] = float("-inf")
        return logits

    def timed(self, began: float) -> None:
        """Fold the time since ``began`` (time.perf_counter) into ``ms``; call after a host sync."""
        took = (time.perf_counter() - began) * 1e3
        self.ms = took if not self.ms else self.ms + 0.2 * (min(took, 4 * self.ms) - self.ms)

    def rows(self, logits: torch.Tensor, width: int = WIDTH) -> list[Row]:
        """The ``width`` likeliest candidates of every position of ``[..., Vd]`` logits, positions flattened; one copy to the host."""
        return rows(logits, width, self.net.vocab_ids)

    def full(self, probs: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """``[n, Vd]`` probabilities over the network's vocabulary as ``[n, vocab_size]`` over the target's."""
        if self.net.vocab_ids is None:
            return torch.nn.functional.pad(probs, (0, vocab_size - probs.shape[-1]))
        out = probs.new_zeros(probs.shape[0], vocab_size)
        out[:, self.net.vocab_ids] = probs
        return out


def rows(logits: torch.Tensor, width: int, vocab_ids: torch.Tensor | None) -> list[Row]:
    """See :meth:`Session.rows`. Probabilities are softmax values over the whole reduced vocabulary, in float32."""
    logits = logits.reshape(-1, logits.shape[-1])
    best, index = logits.topk(min(width, logits.shape[-1]), dim=-1)
    probs = (best - logits.logsumexp(-1, keepdim=True)).exp()
    ids = index if vocab_ids is None else vocab_ids[index]
    packed = torch.stack((ids.double(), probs.double())).tolist()
    return [[(int(i), p) for i, p in zip(*pair, strict=True) if p > 0] for pair in zip(*packed, strict=True)]


def frame(rows: Sequence[Row], ids: Sequence[int] | None = None, masked: Sequence[bool] | None = None, **more: Any) -> Denoise:
    """One recorded denoising step: the candidates of each position, the guess shown there (default: the best) and what is still a mask."""
    shown = list(ids) if ids is not None else [row[0][0] for row in rows]
    conf = [dict(row).get(token, 0.0) for row, token in zip(rows, shown, strict=True)]
    return Denoise(ids=shown, masked=list(masked) if masked is not None else [False] * len(rows), conf=conf, top=[[list(c) for c in row] for row in rows], **more)


def _column(vocab_ids: torch.Tensor | None, mask_id: int | None) -> int | None:
    if mask_id is None or vocab_ids is None:
        return mask_id
    found = (vocab_ids == mask_id).nonzero()
    return int(found[0, 0]) if len(found) else None


def load_network(loaded: Any, kind: str) -> Any:
    """The pair's network of that kind, bound to the target (its ``weights`` say in words if they are another kind's)."""
    from ..models.load import load_drafter

    return load_drafter(loaded.pair, kind, loaded)


def session(loaded: Any, kind: str = "block", other: Session | None = None) -> Session:
    """A session of the pair's network of that kind; ``other`` itself where the pair has no separate weights for it."""
    named = loaded.pair.drafters
    if other is not None and named.get(kind, named.get("block")) == named.get("block"):
        return other
    return Session(load_network(loaded, kind), loaded.device)
