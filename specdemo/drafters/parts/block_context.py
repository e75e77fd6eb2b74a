"""A diffusion network following one run: its context cache, its passes, and its logits as short
lists of candidates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import UserError
from ...models.markov import shortlist
from .base import Context
from .candidates import Row, Table
from .params import P

MASK = -1  # the block networks' mark for a masked slot
WIDTH = 8  # candidates read at every position, recorded or not, so that looking changes nothing
# so many candidates of a position are asked what follows them; behind others the position after
# speaks for itself
BEFORE = 12


class Session:
    """Wraps one network of ``specdemo.models.block_drafter`` for the length of one run.

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

    def fit(self, params: P, *names: str, beside: Session | None = None) -> P:
        """``params`` with the masks asked for, ``gamma`` unless named, within one block of this
        network (and of the one ``beside`` it): the usual value follows a shorter block, another one
        is refused."""
        most = min(self.most, beside.most if beside else self.most)
        for name in names or ("gamma",):
            if (value := getattr(params, name)) <= most:
                continue
            if value != type(params).model_fields[name].default:
                raise UserError(
                    f"{name} = {value} is more than this drafter's block of {most} masks; choose"
                    f" {name} up to {most}."
                )
            params = params.model_copy(update={name: most})
        return params

    def catch_up(self, context: Context) -> None:
        """Give the network the target's features of everything committed since the last call;
        several rounds may have passed.
        """
        self.extend(*context.take_features())

    def extend(self, features: torch.Tensor, start: int) -> None:
        """The same with features at hand."""
        if features.shape[0]:
            self.net.extend(self.cache, features, start)

    def hidden(
        self, blocks: Sequence[Sequence[int]] | torch.Tensor, anchor_position: int
    ) -> torch.Tensor:
        """One pass over blocks of equal width ``[anchor, tokens or MASK ...]``: ``[B, w, H]``, slot
        k speaks about ``anchor_position + k``.
        """
        return self.net.hidden(
            torch.as_tensor(blocks, dtype=torch.int64, device=self.device),
            anchor_position,
            self.cache,
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H]`` to float32 ``[..., Vd]`` over the network's own vocabulary. The mask's
        column is −inf: it is never proposed.
        """
        logits = self.net.logits(hidden).float()
        if self.never is not None:
            logits[..., self.never] = float("-inf")
        return logits

    def fill(self, context: Context, gamma: int, fresh: bool = True) -> torch.Tensor:
        """Catch up (if ``fresh``), then one pass over the anchor and ``gamma`` masks: logits
        ``[gamma, Vd]``, cut to the engine's budget.
        """
        return self.logits(self._filled(context, gamma, fresh))

    def table(self, context: Context, gamma: int, follow: bool = True, fresh: bool = True) -> Table:
        """Catch up (if ``fresh``), then one pass over the anchor and ``gamma`` masks, as
        candidates, at most as many positions as the budget.
        """
        return self.tabled(self._filled(context, gamma, fresh), follow)

    def _filled(self, context: Context, gamma: int, fresh: bool) -> torch.Tensor:
        """States ``[gamma, H]`` of that pass's masks, cut to the budget."""
        if fresh:
            self.catch_up(context)
        return self.hidden([[context.ids[-1]] + [MASK] * gamma], len(context.ids) - 1)[
            0, 1 : context.budget + 1
        ]

    def tabled(self, hidden: torch.Tensor, follow: bool = True) -> Table:
        """States ``[n, H]`` of neighbouring slots as candidates; with ``follow`` the network's
        Markov head, if it has one, is asked about them.
        """
        logits = self.logits(hidden)
        head = getattr(self.net, "markov_tables", None) if follow and len(hidden) > 1 else None
        if head is None:
            return Table(rows(logits, self.net.vocab_ids))
        index, logp = shortlist(logits)
        behind, which = head(hidden[1:], index[:-1, :BEFORE], index[1:], logp[1:]).topk(
            min(WIDTH, index.shape[1]), dim=-1
        )
        ids = index if self.net.vocab_ids is None else self.net.vocab_ids[index]
        n, wide, (_, many, kept) = *ids.shape, behind.shape
        # one copy to the host
        flat = torch.cat([t.flatten().double() for t in (ids, logp.exp(), behind, which)]).cpu()
        ids, probs, behind, which = flat.split(
            [n * wide, n * wide, (n - 1) * many * kept, (n - 1) * many * kept]
        )
        ids, probs = ids.long().view(n, wide).tolist(), probs.view(n, wide)[:, :WIDTH].tolist()
        plain = [
            [(i, p) for i, p in zip(*pair, strict=False) if p > 0]
            for pair in zip(ids, probs, strict=True)
        ]
        return Table(
            plain,
            ids,
            behind.view(n - 1, many, kept).numpy(),
            which.long().view(n - 1, many, kept).numpy(),
        )

    def timed(self, began: float) -> None:
        """Fold the time since ``began`` (time.perf_counter) into ``ms``; call after a host sync."""
        took = (time.perf_counter() - began) * 1e3
        self.ms = took if not self.ms else self.ms + 0.2 * (min(took, 4 * self.ms) - self.ms)

    def rows(self, logits: torch.Tensor, width: int = WIDTH) -> list[Row]:
        """The ``width`` likeliest candidates of every position of ``[..., Vd]`` logits, positions
        flattened; one copy to the host.
        """
        return rows(logits, self.net.vocab_ids, width)


def rows(logits: torch.Tensor, vocab_ids: torch.Tensor | None, width: int = WIDTH) -> list[Row]:
    """See :meth:`Session.rows`. Probabilities are softmax values over the whole reduced vocabulary,
    in float32.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    best, index = logits.topk(min(width, logits.shape[-1]), dim=-1)
    probs = (best - logits.logsumexp(-1, keepdim=True)).exp()
    ids = index if vocab_ids is None else vocab_ids[index]
    packed = torch.stack((ids.double(), probs.double())).tolist()
    return [
        [(int(i), p) for i, p in zip(*pair, strict=True) if p > 0]
        for pair in zip(*packed, strict=True)
    ]


def pick(logits: torch.Tensor, context: Context | None = None) -> torch.Tensor:
    """One column of every row of ``[..., Vd]`` logits: the best, or, given a context, one sampled
    at its temperature.
    """
    if context is None or context.temperature <= 0:
        return logits.argmax(-1)
    probs = (logits / context.temperature).softmax(-1).reshape(-1, logits.shape[-1])
    where = probs.device if context.generator is None else context.generator.device
    return (
        torch.multinomial(probs.to(where), 1, generator=context.generator)
        .to(probs.device)
        .view(logits.shape[:-1])
    )


def law(logits: torch.Tensor, temperature: float, columns: torch.Tensor) -> torch.Tensor:
    """The distribution ``[n, Vd]`` that :func:`pick` drew ``columns`` from: one-hot at temperature
    0.
    """
    return (logits / temperature).softmax(-1) if temperature > 0 else one_hot(columns, logits)


def one_hot(columns: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``[n, Vd]`` with all mass on one column a row."""
    return torch.zeros_like(like).scatter_(-1, columns[..., None], 1.0)


def widen(probs: torch.Tensor, vocab_ids: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """``[n, Vd]`` over the network's vocabulary as ``[n, vocab_size]`` over the target's."""
    if vocab_ids is None:
        return torch.nn.functional.pad(probs, (0, vocab_size - probs.shape[-1]))
    out = probs.new_zeros(probs.shape[0], vocab_size)
    out[:, vocab_ids] = probs
    return out


def _column(vocab_ids: torch.Tensor | None, mask_id: int | None) -> int | None:
    if mask_id is None or vocab_ids is None:
        return mask_id
    found = (vocab_ids == mask_id).nonzero()
    return int(found[0, 0]) if len(found) else None


def load_network(loaded: Any, kind: str) -> Any:
    """The pair's network of that kind, bound to the target (its ``weights`` say in words if they
    are another kind's).
    """
    from ...models.drafters import load_drafter

    return load_drafter(loaded.pair, kind, loaded)


def session(loaded: Any, kind: str = "block", other: Session | None = None) -> Session:
    """A session of the pair's network of that kind; ``other`` itself where the pair has no separate
    weights for it.
    """
    named = loaded.pair.drafters
    if other is not None and named.get(kind, named.get("block")) == named.get("block"):
        return other
    return Session(load_network(loaded, kind), loaded.device)
