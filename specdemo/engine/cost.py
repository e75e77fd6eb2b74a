"""What passes of the target cost on this machine, and what a round should take by those costs: the
one place where milliseconds become predictions.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import UserError

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
WIDER = (96, 128, 192, 272)  # tried once a race asks for so many nodes (256 of them, say)
VERIFY_WIDTH = 16  # the width whose numerics the others must reproduce bit for bit
CONTEXT = 160  # tokens before the passes that ``CostModel.ms`` tells of; enough for every kernel

# Costs are corrected only by as much as this, either way, or more: a race's passes also sample, and
# are measured beside whatever else runs, so that small differences are no news.
NEWS = 1.25
FEW = 4  # passes of a width that say nothing yet about it


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of the target's passes, measured at load (see :mod:`.calibrate`) and corrected
    by races (see :mod:`.pace`).

    Attributes:
        ms: rows -> milliseconds of one undisturbed pass with the layout-invariant attention behind
            ``CONTEXT`` tokens.
        one_row_ms: the same for the fastest way to decode plainly: one row, the library's masked
            attention kernel.
        slope: rows -> what every further token of context adds to ``ms``; one_row_slope: to
            ``one_row_ms``.
        widths: the trusted row counts, ascending: their logits are bitwise equal to those of
            ``VERIFY_WIDTH`` rows. A race uses no others.
    """

    ms: dict[int, float]
    one_row_ms: float
    widths: list[int] = field(default_factory=lambda: [VERIFY_WIDTH])
    slope: dict[int, float] = field(default_factory=dict)
    one_row_slope: float = 0.0

    def at(self, context: int) -> CostModel:
        """The costs of passes behind ``context`` tokens, as ``ms`` and ``one_row_ms``."""
        more = max(context - CONTEXT, 0)
        return replace(
            self,
            ms={width: ms + more * self.slope.get(width, 0.0) for width, ms in self.ms.items()},
            one_row_ms=self.one_row_ms + more * self.one_row_slope,
            slope={},
            one_row_slope=0.0,
        )

    def corrected(self, ratios: Mapping[int, Sequence[float]]) -> CostModel:
        """The costs after ``ratios``: width -> milliseconds that passes took over those expected.

        A width with at least ``FEW`` of them follows their median, the others the median of all;
        differences below ``NEWS`` change nothing. The one-row kernel follows the plain lane.
        """
        everything = [ratio for some in ratios.values() for ratio in some]
        if len(everything) < FEW:
            return self
        overall = statistics.median(everything)

        def factor(width: int) -> float:
            some = ratios.get(width, ())
            of_width = statistics.median(some) if len(some) >= FEW else overall
            return of_width if not 1 / NEWS < of_width < NEWS else 1.0

        factors = {width: factor(width) for width in self.ms}
        one_row = factors[self.ar_width]
        return replace(
            self,
            ms={width: ms * factors[width] for width, ms in self.ms.items()},
            one_row_ms=self.one_row_ms * one_row,
            slope={width: ms * factors[width] for width, ms in self.slope.items()},
            one_row_slope=self.one_row_slope * one_row,
        )

    def least(self, other: CostModel) -> CostModel:
        """The lower costs of both, pass by pass."""
        lower = {width: ms for width, ms in self.ms.items() if other.ms[width] < ms}
        one_row = min((self, other), key=lambda costs: costs.one_row_ms)
        return replace(
            self,
            ms=self.ms | {width: other.ms[width] for width in lower},
            slope=self.slope | {width: other.slope.get(width, 0.0) for width in lower},
            one_row_ms=one_row.one_row_ms,
            one_row_slope=one_row.one_row_slope,
        )

    @property
    def ar_width(self) -> int:
        """Rows of a pass of the plain lane: the narrowest trusted width."""
        return self.widths[0]

    @property
    def max_rows(self) -> int:
        """The most rows one pass may verify, anchor included."""
        return self.widths[-1]

    @property
    def baseline_ms(self) -> float:
        """Milliseconds a token that speed-ups are measured against: the faster of the plain lane's
        pass and the one-row kernel.
        """
        return min(self.ms[self.ar_width], self.one_row_ms)

    def width_for(self, rows: int) -> int:
        """The narrowest trusted width that holds ``rows``.

        Raises:
            UserError: no trusted width holds that many.
        """
        for width in self.widths:
            if rows <= width:
                return width
        raise UserError(
            f"A draft of {rows - 1} tokens is more than this engine verifies at once"
            f" ({self.max_rows - 1}); lower γ or the budget."
        )

    def rows_for(self, nodes: int) -> int:
        """The most rows of a pass in a race whose drafts have at most so many nodes: those of
        :data:`WIDTHS` in any case, and of the wider ones as many as it needs.
        """
        usual = [width for width in self.widths if width <= WIDTHS[-1]]
        wider = [width for width in self.widths if width > nodes]
        return max(usual[-1], wider[0] if wider else self.max_rows)

    def pass_ms(self, rows: int) -> float:
        """Expected milliseconds of a pass with that many live rows: it could be padded to any wider
        one, so none of those costs less.
        """
        least = self.width_for(rows)
        return min(self.ms[width] for width in self.widths if width >= least)

    def predicted_ms(self, rows: int, draft_ms: float) -> float:
        """Expected milliseconds of a round: its target pass of ``rows`` live rows and the time
        really spent on drafting, also when nothing was drafted in the end.
        """
        return self.pass_ms(rows) + draft_ms


class Measured(NamedTuple):
    """What passes cost.

    Attributes:
        curves: by number of threads, the most first; only of those with the very bits of the most.
        sure: every pass behind the short context took about its least twice.
    """

    curves: dict[int, CostModel]
    sure: bool
