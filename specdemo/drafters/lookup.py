"""Prompt lookup decoding: the tokens that followed the last occurrence of the current n-gram are
drafted again (Saxena, 2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ..errors import UserError
from .parts.base import Context, Draft, Verdict
from .parts.ngram import SuffixIndex
from .parts.params import MethodParams, depth

if TYPE_CHECKING:
    from ..models.load import Loaded


class Params(MethodParams):
    gamma: int = depth(7, "Tokens copied per round")
    longest: int = Field(4, ge=1, le=8, description="Longest n-gram to look up")
    shortest: int = Field(1, ge=1, le=8, description="Shortest n-gram that counts as a match")

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}

    def check(self) -> None:
        if self.shortest > self.longest:
            raise UserError(
                f"shortest ({self.shortest}) must not be above longest ({self.longest}); lower one"
                " or raise the other."
            )


class LookupDrafter:
    """Drafts the continuation of the longest n-gram that occurred before, at its most recent
    occurrence.
    """

    layer_ids: tuple[int, ...] = ()
    weights = "none (copies from the text so far)"

    def __init__(self, loaded: Loaded, params: Params) -> None:
        self.params = params

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.index = SuffixIndex(self.params.shortest, self.params.longest)

    def propose(self, context: Context) -> Draft:
        self.index.extend_to(context.ids)
        ids, length = self.index.continuation(min(self.params.gamma, context.budget))
        notes = {}
        if context.record:
            notes["why"] = (
                f"the last {length} tokens occur earlier in the text"
                if length > 1
                else "the last token occurs earlier in the text"
                if length
                else "the last tokens occur nowhere else in the text"
            )
        return Draft.chain(ids, origin="ngram", notes=notes)

    def observe(self, verdict: Verdict) -> None:
        pass
