"""The methods: how a draft is proposed. One file each; this list is the order of the page. Importing it loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import ar, block, lookup
from .base import Drafter


@dataclass(frozen=True)
class Method:
    """One way to draft.

    Attributes:
        name, title: for the command line and for people.
        explain: two sentences for a student.
        params: dataclass of its parameters; every field carries limits and one line of help.
        build: makes the drafter from ``models.Loaded`` and checked parameters.
        rules: acceptance rules that keep this method lossless, the default first.
        why_not: for every other rule, why it would not be.
        forbid: what only some parameters rule out; a sentence or None.
    """

    name: str
    title: str
    explain: str
    params: type
    build: Callable[[Any, Any], Drafter]
    rules: tuple[str, ...] = ("match",)
    why_not: dict[str, str] = field(default_factory=dict)
    forbid: Callable[[str, Any], str | None] | None = None

    def refuse(self, rule: str, params: Any) -> str | None:
        """One sentence if ``rule`` would not be lossless with these parameters, else None."""
        if rule not in self.rules:
            reason = self.why_not.get(rule, "no draft is sampled, so there is no q to divide by" if rule == "ratio" else "match accepts exactly as often")
            return f"{self.title} cannot use the rule “{rule}” ({reason}); choose {' or '.join(self.rules)}."
        return self.forbid(rule, params) if self.forbid else None

    def make(self, loaded: Any, params: Any) -> Drafter:
        """The drafter, its network loaded. Raises Refusal where the parameters do not fit the network."""
        return self.build(loaded, params)


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "ar",
            "Plain decoding",
            "The model writes one token, reads it back, and writes the next. Nothing is guessed; this is the clock everything else runs against.",
            ar.Params,
            ar.PlainDrafter,
            why_not={"ratio": "nothing is drafted, so nothing is accepted", "point-mass": "nothing is drafted, so nothing is accepted"},
        ),
        Method(
            "lookup",
            "Prompt lookup",
            "If the last words stood earlier in the text, what followed them there is proposed again. No network at all: free, and hard to beat when the answer copies the prompt.",
            lookup.Params,
            lookup.LookupDrafter,
        ),
        Method(
            "block",
            "Block diffusion (DFlash)",
            "A small diffusion network sees the target's own thoughts about the text and fills a whole block of masks in one pass. The best guess at every mask forms one chain, which the target checks at once.",
            block.Params,
            block.BlockChain,
        ),
    )
}
