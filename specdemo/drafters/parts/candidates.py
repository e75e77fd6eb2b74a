"""What one pass of a diffusion network says, as short lists of candidates: on their own, and behind
the token before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...events import Denoise
from .trees import Choice

HEAD = "Markov head"  # the name of its step, which the page knows

Row = list[tuple[int, float]]  # candidates of one position: (target id, probability), best first


class Table:
    """The candidates of neighbouring positions: by the block alone, and, where its network has a
    Markov head, behind a given token before.

    Attributes:
        rows: per position the likeliest candidates by the block alone.
    """

    def __init__(
        self,
        rows: list[Row],
        ids: list[list[int]] | None = None,
        behind: Any = None,
        which: Any = None,
    ) -> None:
        """
        Args:
            ids: ``[n][C]`` candidates of the head. behind, which: ``[n - 1, P, k]`` arrays, for
                position d + 1 behind candidate b < P of position d the likeliest probabilities and
                which of its candidates they belong to. None: there is no head.
        """
        self.rows = rows
        self._ids, self._behind, self._which = ids, behind, which
        self._places: list[dict[int, int] | None] = [None] * len(rows)
        self._found: dict[tuple[int, int], Row] = {}

    @property
    def follows(self) -> bool:
        """Whether a Markov head was asked."""
        return self._ids is not None

    def after(self, d: int, before: int) -> Row | None:
        """Candidates of position d behind the token ``before`` it, best first; None where the head
        knows nothing about it.
        """
        if d == 0 or self._ids is None:
            return None
        row = self._found.get((d, before))
        if row is None:
            places = self._places[d - 1]
            if places is None:
                places = self._places[d - 1] = {
                    token: b for b, token in enumerate(self._ids[d - 1][: self._behind.shape[1]])
                }
            b = places.get(before)
            if b is None:
                return None
            ids = self._ids[d]
            pairs = zip(
                self._which[d - 1, b].tolist(), self._behind[d - 1, b].tolist(), strict=True
            )
            row = self._found[d, before] = [(ids[c], p) for c, p in pairs if p > 0]
        return row

    def chain(self, start: int = 0, stop: int | None = None) -> list[Row]:
        """Rows ``start`` to ``stop``, each behind the best token of the row before; the first one
        by the block alone.
        """
        out: list[Row] = []
        for d in range(start, len(self.rows) if stop is None else stop):
            out.append((self.after(d, out[-1][0][0]) if out else None) or self.rows[d])
        return out

    def choices(self) -> tuple[Callable[[Any], list[Choice]], Any]:
        """``expand`` and ``start`` for :func:`.trees.best_first`: a state is (depth, the token
        before); the same objects for the same state.
        """
        known: dict[tuple[int, int], list[Choice]] = {}

        def expand(state: tuple[int, int]) -> list[Choice]:
            d, before = state
            if d >= len(self.rows):
                return []
            row = self.after(d, before)
            state = state if row is not None else (d, -1)
            found = known.get(state)
            if found is None:
                found = known[state] = [
                    (token, p, (d + 1, token), None) for token, p in row or self.rows[d]
                ]
            return found

        return expand, (0, -1)


def frame(
    rows: Sequence[Row],
    ids: Sequence[int] | None = None,
    masked: Sequence[bool] | None = None,
    **more: Any,
) -> Denoise:
    """One recorded denoising step: the candidates of each position, the guess shown there (default:
    the best) and what is still a mask.
    """
    shown = list(ids) if ids is not None else [row[0][0] for row in rows]
    conf = [dict(row).get(token, 0.0) for row, token in zip(rows, shown, strict=True)]
    return Denoise(
        ids=shown,
        masked=list(masked) if masked is not None else [False] * len(rows),
        conf=conf,
        top=[[list(c) for c in row] for row in rows],
        **more,
    )


def frames(table: Table) -> list[Denoise]:
    """A pass as it is recorded: every position by itself, then, where there is a Markov head, each
    behind the best token before it.
    """
    if not table.follows:
        return [frame(table.rows, label="block")]
    return [
        frame(table.rows, label="block", steps=2),
        frame(table.chain(), label=HEAD, step=1, steps=2),
    ]
