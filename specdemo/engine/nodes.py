"""What is said where a pass verifies fewer nodes than a draft has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from ..drafters.parts.params import MethodParams
    from .lane import Lane


def refuse_nodes(params: MethodParams, most_rows: int, widths: Sequence[int]) -> None:
    """Refuse settings that ask for more nodes than passes of ``most_rows`` rows verify.

    Args:
        widths: row counts whose bits are equal, ascending.

    Raises:
        UserError: there is one.
    """
    for name, nodes in params.needs().items():
        if nodes >= most_rows:
            raise UserError(
                f"{name} = {nodes} is more than the {most_rows - 1} drafted tokens that one pass of"
                f" this target verifies here (rows have the same bits in passes of"
                f" {_listed(widths)}); choose {name} up to {most_rows - 1}."
            )


def cut_note(lane: Lane) -> str | None:
    """A sentence about the rounds whose tree did not fit into a pass, if there were any."""
    if not lane.cut_rounds:
        return None
    widths = [width for width in lane.engine.costs.widths if width <= lane.most_rows]
    rounds = f"{lane.cut_rounds} of {lane.rounds} rounds"
    return (
        f"In {rounds} the tree was cut to the {lane.most_rows - 1} nodes that one pass verifies"
        f" here (rows have the same bits in passes of {_listed(widths)})."
    )


def _listed(widths: Sequence[int]) -> str:
    if len(widths) == 1:
        return f"{widths[0]} rows"
    return f"{', '.join(map(str, widths[:-1]))} and {widths[-1]} rows"
