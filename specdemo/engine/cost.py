"""What passes of the target cost on this machine, and what a round should take by those costs: the
one place where milliseconds become predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import UserError

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
VERIFY_WIDTH = 16  # the width whose numerics the others must reproduce bit for bit


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of the target's passes, measured at load (see :mod:`.calibrate`).

    Attributes:
        ms: rows -> milliseconds of one undisturbed pass with the layout-invariant attention.
        one_row_ms: the same for the fastest way to decode plainly: one row, the library's masked
            attention kernel.
        widths: the trusted row counts, ascending: their logits are bitwise equal to those of
            ``VERIFY_WIDTH`` rows. A race uses no others.
    """

    ms: dict[int, float]
    one_row_ms: float
    widths: list[int] = field(default_factory=lambda: [VERIFY_WIDTH])

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

    def pass_ms(self, rows: int) -> float:
        """Expected milliseconds of a pass with that many live rows: it could be padded to any wider
        one, so none of those costs less.
        """
        return min(self.ms[width] for width in self.widths if width >= self.width_for(rows))

    def predicted_ms(self, rows: int, draft_ms: float) -> float:
        """Expected milliseconds of a round: its target pass of ``rows`` live rows and the time
        really spent on drafting, also when nothing was drafted in the end.
        """
        return self.pass_ms(rows) + draft_ms
