"""The candidates of one pass of a block drafter, as short lists: unconditional, and conditioned on
the token before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...events import Denoise
from .trees import Choice

HEAD = "Markov head"  # label of its recorded step; the page compares with it

# candidates of one position: (target id, probability), likeliest first
Candidates = list[tuple[int, float]]
State = tuple[int, int]  # depth, token before it (-1: any)


class CandidateTable:
    """The candidates of ``n`` neighbouring positions: by the block alone, and, where its drafter
    has a Markov head, conditioned on the token before.

    Attributes:
        rows: per position the likeliest candidates by the block alone.
        confidence: per position of :meth:`chain` the probability of its acceptance as a head
            predicts it (DSpark); empty without such a head.
    """

    def __init__(
        self,
        rows: list[Candidates],
        ids: list[list[int]] | None = None,
        next_probs: Any = None,
        next_ids: Any = None,
        confidence: list[float] | None = None,
    ) -> None:
        """
        Args:
            ids: ``[n][C]`` the candidates that the head knows; None: there is no head.
            next_probs, next_ids: numpy ``[n - 1, P, k]``: for position d + 1 after candidate b < P
                of position d the likeliest probabilities, and the tokens they belong to.
            confidence: ``[n]`` see the attribute; none where the head does not predict it.
        """
        self.rows = rows
        self._ids, self._next_probs, self._next_ids = ids, next_probs, next_ids
        self.confidence = confidence or []
        # per position: token -> its place among the first P candidates
        self._places: list[dict[int, int] | None] = [None] * len(rows)
        self._conditional: dict[State, Candidates] = {}

    @property
    def has_markov_head(self) -> bool:
        """Whether a Markov head was evaluated."""
        return self._ids is not None

    def conditional(self, depth: int, prev: int) -> Candidates | None:
        """The candidates at position ``depth`` after the token ``prev``, likeliest first; None
        where the head says nothing about it.
        """
        if depth == 0 or self._ids is None:
            return None
        row = self._conditional.get((depth, prev))
        if row is None:
            places = self._places[depth - 1]
            if places is None:
                known = self._ids[depth - 1][: self._next_probs.shape[1]]
                places = self._places[depth - 1] = {token: b for b, token in enumerate(known)}
            b = places.get(prev)
            if b is None:
                return None
            pairs = zip(
                self._next_ids[depth - 1, b].tolist(),
                self._next_probs[depth - 1, b].tolist(),
                strict=True,
            )
            row = self._conditional[depth, prev] = [(i, p) for i, p in pairs if p > 0]
        return row

    def chain(self, start: int = 0, stop: int | None = None) -> list[Candidates]:
        """The candidates at positions ``start`` to ``stop``, each conditioned on the likeliest
        token of the one before; the first by the block alone.
        """
        out: list[Candidates] = []
        for depth in range(start, len(self.rows) if stop is None else stop):
            prev = out[-1][0][0] if out else None
            row = None if prev is None else self.conditional(depth, prev)
            out.append(row or self.rows[depth])
        return out

    def chain_probs(self) -> list[float]:
        """The probability of the likeliest token at every position of :meth:`chain`."""
        return [row[0][1] for row in self.chain()]

    def choices(self) -> tuple[Callable[[State], list[Choice]], State]:
        """``expand`` and ``start`` for :func:`.trees.best_first`. A state is (depth, token before);
        equal states give the very same list.
        """
        known: dict[State, list[Choice]] = {}

        def expand(state: State) -> list[Choice]:
            depth, prev = state
            if depth >= len(self.rows):
                return []
            row = self.conditional(depth, prev)
            state = state if row is not None else (depth, -1)
            found = known.get(state)
            if found is None:
                found = known[state] = [
                    (token, p, (depth + 1, token), None) for token, p in row or self.rows[depth]
                ]
            return found

        return expand, (0, -1)


def frame(
    rows: Sequence[Candidates],
    ids: Sequence[int] | None = None,
    masked: Sequence[bool] | None = None,
    **more: Any,
) -> Denoise:
    """One recorded denoising step: the candidates of each position, the token shown there (default:
    the likeliest) and whether it is still a mask.
    """
    shown = list(ids) if ids is not None else [row[0][0] for row in rows]
    conf = [dict(row).get(token, 0.0) for row, token in zip(rows, shown, strict=True)]
    return Denoise(
        ids=shown,
        masked=list(masked) if masked is not None else [False] * len(rows),
        conf=conf,
        top=[list(row) for row in rows],
        **more,
    )


def frames(table: CandidateTable) -> list[Denoise]:
    """The recorded steps of one pass: every position by the block alone; then, where there is a
    Markov head, each conditioned on the likeliest token before it.
    """
    if not table.has_markov_head:
        return [frame(table.rows, label="block")]
    return [
        frame(table.rows, label="block", steps=2),
        frame(table.chain(), label=HEAD, step=1, steps=2),
    ]
