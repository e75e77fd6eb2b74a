"""Prompt lookup: the text so far is its own drafter. Where the last words stood before, what
followed them is proposed.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..errors import UserError
from .parts.base import Context, Draft, Verdict
from .parts.ngram import SuffixIndex
from .parts.params import MethodParams


class Params(MethodParams):
    gamma: int = Field(7, ge=1, le=32, description="Tokens copied per round")
    longest: int = Field(4, ge=1, le=8, description="Longest n-gram to look up")
    shortest: int = Field(1, ge=1, le=8, description="Shortest n-gram that counts as a match")

    def check(self) -> None:
        if self.shortest > self.longest:
            raise UserError(
                f"shortest ({self.shortest}) must not be above longest ({self.longest}); lower one"
                " or raise the other."
            )


class LookupDrafter:
    """Proposes the continuation of the most recent longest match (prompt lookup decoding)."""

    layer_ids: tuple[int, ...] = ()
    weights = "none (copies from the text so far)"

    def __init__(self, loaded: Any, params: Params) -> None:
        self.params = params

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.index = SuffixIndex(self.params.shortest, self.params.longest)

    def propose(self, context: Context) -> Draft:
        self.index.follow(context.ids)
        ids, length = self.index.continuation(min(self.params.gamma, context.budget))
        notes = {}
        if context.record:
            notes["why"] = (
                f"the last {length} tokens stood earlier in the text"
                if length
                else "the last tokens stand nowhere else in the text"
            )
        return Draft.chain(ids, origin="ngram", notes=notes)

    def observe(self, verdict: Verdict) -> None:
        pass
