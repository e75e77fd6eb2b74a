"""Plain decoding: nothing is drafted, every round writes one token. The baseline, in the same
engine.
"""

from __future__ import annotations

from .parts.base import Context, Draft, Verdict
from .parts.params import MethodParams


class Params(MethodParams):
    """Plain decoding has none."""


class PlainDrafter:
    layer_ids: tuple[int, ...] = ()
    weights = "none"

    def __init__(self, loaded: object, params: Params) -> None:
        self.params = params

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        pass

    def propose(self, context: Context) -> Draft:
        return Draft()

    def observe(self, verdict: Verdict) -> None:
        pass
