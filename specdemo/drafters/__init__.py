"""The methods: how a draft is proposed. One file each; this list is the order of the page.
Importing it loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import ar, ar_draft, best, block, d2sd, diffuspec, lookup, specdiff, specdiff2, tree
from .parts.base import Drafter
from .parts.params import MethodParams, parse_params, upgrade_params


@dataclass(frozen=True)
class Method:
    """One way to draft.

    Attributes:
        name, title: for the command line and for people.
        explain: two sentences for a student.
        params: declares its parameters, with limits and one line of help each.
        build: makes the drafter from ``models.Loaded`` and checked parameters, its network loaded;
            raises UserError where the parameters do not fit the network.
        rules: acceptance rules that keep this method lossless, the default first.
        why_not: for every other rule, why it would not be.
        forbid: what only some parameters rule out; a sentence or None.
        network: whether it needs the pair's drafter.
    """

    name: str
    title: str
    explain: str
    params: type[MethodParams]
    build: Callable[[Any, Any], Drafter]
    rules: tuple[str, ...] = ("match",)
    why_not: dict[str, str] = field(default_factory=dict)
    forbid: Callable[[str, Any], str | None] | None = None
    network: bool = True

    def refuse(self, rule: str, params: Any) -> str | None:
        """One sentence if ``rule`` would not be lossless with these parameters, else None."""
        if rule not in self.rules:
            reason = self.why_not.get(
                rule,
                (
                    "no draft is sampled, so there is no q to divide by"
                    if rule == "ratio"
                    else "match accepts exactly as often"
                ),
            )
            return (
                f"{self.title} cannot use the rule “{rule}” ({reason}); choose"
                f" {' or '.join(self.rules)}."
            )
        return self.forbid(rule, params) if self.forbid else None

    def refuse_pair(self, pair: Any) -> str | None:
        """One sentence if ``pair`` has no drafter and cannot have one here, before anything is
        fetched; else None.
        """
        if self.network and not pair.drafters and pair.blocked:
            return (
                f"The pair {pair.id} has no diffusion drafter here; {pair.blocked}. Choose another"
                " pair, or the method ar or lookup."
            )
        return None

    def parse_params(self, values: Mapping[str, Any]) -> MethodParams:
        """Checked parameters from outside values; old spellings are upgraded first. Raises
        UserError.
        """
        return parse_params(self.params, upgrade_params(self.name, values))


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "ar",
            "Plain decoding",
            "The model writes one token, reads it back, and writes the next. Nothing is guessed;"
            " this is the clock everything else runs against.",
            ar.Params,
            ar.PlainDrafter,
            why_not={
                "ratio": "nothing is drafted, so nothing is accepted",
                "point-mass": "nothing is drafted, so nothing is accepted",
            },
            network=False,
        ),
        Method(
            "lookup",
            "Prompt lookup",
            "If the last words stood earlier in the text, what followed them there is proposed"
            " again. No network at all: free, and hard to beat when the answer copies the prompt.",
            lookup.Params,
            lookup.LookupDrafter,
            network=False,
        ),
        Method(
            "ar-draft",
            "Small autoregressive drafter",
            "A small model writes a few tokens one after the other, the large one checks them all"
            " at once. Each drafted token costs a pass of its own, which is what diffusion saves.",
            ar_draft.Params,
            ar_draft.SerialDrafter,
            ("match", "ratio"),
        ),
        Method(
            "specdiff",
            "SpecDiff",
            "A masked diffusion model fills a block of masks in a few denoising steps, several"
            " masks a step. More steps make better drafts but each is one more pass; T and the"
            " block length are yours to choose.",
            specdiff.Params,
            specdiff.SpecDiff,
            ("match", "ratio"),
            forbid=specdiff.forbid,
        ),
        Method(
            "specdiff2",
            "SpecDiff-2",
            "One pass gives every position its own distribution, and several different drafts are"
            " drawn from it and merged into a tree. The target's own probabilities then say which"
            " draft promises the longest streak.",
            specdiff2.Params,
            specdiff2.SpecDiff2,
            ("match", "point-mass"),
            {
                "ratio": (
                    "choosing a draft by the target's probabilities changes the law of what ratio"
                    " then accepts"
                )
            },
        ),
        Method(
            "diffuspec",
            "DiffuSpec",
            "A diffusion pass guesses every position on its own, so neighbours may not fit; a beam"
            " search through the lattice of candidates asks an n-gram model of the text so far"
            " which words follow each other. A controller lengthens or shortens the next draft.",
            diffuspec.Params,
            diffuspec.DiffuSpec,
            why_not={
                "ratio": "the search picks its path instead of sampling it, so no q describes it"
            },
        ),
        Method(
            "d2sd",
            "D²SD",
            "The first block's confidence says where the target will most likely refuse it. A"
            " second network, shown the block up to each of those places, drafts the rest again,"
            " and all branches are checked as one tree.",
            d2sd.Params,
            d2sd.D2SD,
        ),
        Method(
            "tree",
            "Best-first tree",
            "One diffusion pass gives several candidates for every position, a small Markov head"
            " says which follow which, and the likeliest paths through them form a tree. It grows"
            " only while one more node is worth its milliseconds by the target's measured cost.",
            tree.Params,
            tree.TreeDrafter,
        ),
        Method(
            "best",
            "Everything together (ours)",
            "One tree from the diffusion network's candidates and from what followed the same words"
            " earlier in the text, each believed as often as it came true so far. It is as wide as"
            " the measured milliseconds allow, and where drafting does not pay the network sleeps.",
            best.Params,
            best.Best,
        ),
        Method(
            "block",
            "Block diffusion (DFlash)",
            "A small diffusion network sees the target's own thoughts about the text and fills a"
            " whole block of masks in one pass. The best guess at every mask forms one chain, which"
            " the target checks at once.",
            block.Params,
            block.BlockChain,
        ),
    )
}
