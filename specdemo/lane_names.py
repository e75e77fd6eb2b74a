"""What the two drafting lanes of a race between methods are called where they stand together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .events import Start

AGAIN = "once more"  # the right lane where both decode the same: a measure of noise


def lane_names(start: Start) -> tuple[str, str]:
    """(left, right) of a race with ``start.against``: the methods, with the settings in which they
    differ where they are the same method.
    """
    assert start.against is not None
    left, right = start.against["method"], start.method
    if left != right:
        return left, right
    if same_settings(start):
        return left, f"{right}, {AGAIN}"
    ours, theirs = start.params, start.against["params"]
    differ = [k for k in {**theirs, **ours} if ours.get(k) != theirs.get(k)]
    return _with_settings(left, theirs, differ), _with_settings(right, ours, differ)


def same_settings(start: Start) -> bool:
    """Whether both lanes draft in the same way, so that any difference is timing noise."""
    return start.against is not None and (start.method, start.params) == (
        start.against["method"],
        start.against["params"],
    )


def _with_settings(method: str, params: Mapping[str, Any], names: list[str]) -> str:
    return f"{method} ({', '.join(f'{k}={params.get(k)}' for k in names)})"
