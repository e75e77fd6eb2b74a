"""The methods: how a draft is proposed. One file each; ``METHODS`` is in the order of the page.
Importing it loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..totals import Rule
from . import ar_draft, best, block, d2sd, diffuspec, lookup, plain, specdiff, specdiff2, tree
from .parts.base import Drafter
from .parts.params import MethodParams, parse_params, upgrade_params


@dataclass(frozen=True)
class Method:
    """One way to draft.

    Attributes:
        name, title: for the command line and for people.
        explain: two sentences for somebody who knows speculative decoding.
        params: declares its parameters, with limits and one line of help each.
        build: makes the drafter from ``models.Loaded`` and checked parameters, its network loaded;
            raises UserError where the parameters do not fit the network.
        rules: acceptance rules that keep this method lossless, the default first.
        why_not: for every other rule, why it would not be.
        forbid: refuses a rule for some parameters only: a sentence, or None.
        kinds: the kinds of drafters it asks for, any one of which is enough; none for methods
            without a drafter.
        drafter_optional: it also works with a pair that has none of these.
    """

    name: str
    title: str
    explain: str
    params: type[MethodParams]
    build: Callable[[Any, Any], Drafter]
    rules: tuple[Rule, ...] = ("match",)
    why_not: dict[Rule, str] = field(default_factory=dict)
    forbid: Callable[[Rule, Any], str | None] | None = None
    kinds: tuple[str, ...] = ("block",)
    drafter_optional: bool = False

    def refuse(self, rule: Rule, params: Any) -> str | None:
        """One sentence if ``rule`` would not be lossless with these parameters, else None."""
        if rule not in self.rules:
            reason = self.why_not.get(
                rule,
                (
                    "its drafts are not sampled, so there is no q to divide by"
                    if rule == "ratio"
                    else "match accepts exactly as often and keeps the very tokens"
                ),
            )
            return (
                f"{self.title} cannot use the rule “{rule}” ({reason}); choose"
                f" {' or '.join(self.rules)}."
            )
        return self.forbid(rule, params) if self.forbid else None

    def role(self, pair: Any) -> str | None:
        """The key under ``drafters:`` that it runs on; None where the pair has nothing for it."""
        from ..models.kinds import role_for

        return next(filter(None, (role_for(kind, pair.drafters) for kind in self.kinds)), None)

    def refuse_pair(self, pair: Any) -> str | None:
        """One sentence if ``pair`` has no drafter for this method, or one that is not where it
        should be, before anything is fetched; else None.
        """
        from ..models.fetch import drafter_folder

        if getattr(pair, "engine", None):  # which drafts by itself
            return None
        if (role := self.role(pair)) is not None:
            place = pair.drafters[role]
            try:
                if not place.startswith("hub:"):
                    drafter_folder(place)
            except UserError as error:
                return str(error)
            return None
        if not self.kinds or self.drafter_optional:
            return None
        what = "drafter" if "ar" in self.kinds else "diffusion drafter"
        others = "ar, lookup or best" + (" or ar-draft" if "ar" in pair.drafters else "")
        why = pair.blocked or (
            f"train one with “python -m specdemo train --pair {pair.id}” or name one in models.yaml"
        )
        return (
            f"The pair {pair.id} has no {what} here; {why}. Or choose another pair, or the method"
            f" {others}."
        )

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
            "The target writes one token per pass and nothing is drafted. This is the baseline that"
            " every speed-up is measured against.",
            plain.Params,
            plain.PlainDrafter,
            why_not={
                "ratio": "nothing is drafted, so nothing is accepted",
                "point-mass": "nothing is drafted, so nothing is accepted",
            },
            kinds=(),
        ),
        Method(
            "lookup",
            "Prompt lookup",
            "If the last tokens occurred earlier in the text, the tokens that followed them there"
            " are drafted again. It needs no drafter, costs almost nothing, and is hard to beat"
            " when the answer copies from the prompt.",
            lookup.Params,
            lookup.LookupDrafter,
            kinds=(),
        ),
        Method(
            "ar-draft",
            "Small autoregressive drafter",
            "A small model drafts γ tokens one after the other, and the target verifies all of them"
            " in one pass. Each drafted token costs a drafter pass of its own, which is what a"
            " diffusion drafter saves.",
            ar_draft.Params,
            ar_draft.SerialDrafter,
            ("match", "ratio"),
            kinds=("ar", "block"),
        ),
        Method(
            "specdiff",
            "SpecDiff",
            "A masked diffusion drafter fills a block of masks in T denoising steps, several masks"
            " per step. More steps can make better drafts, but each is one more drafter pass.",
            specdiff.Params,
            specdiff.SpecDiff,
            ("match", "ratio"),
            forbid=specdiff.forbid,
            kinds=("mdlm",),
        ),
        Method(
            "specdiff2",
            "SpecDiff-2",
            "One drafter pass gives every position its own distribution, from which K drafts are"
            " sampled and merged into a tree. Under point-mass the target's probabilities select"
            " the draft with the longest expected streak, under match the target walks through the"
            " whole tree, and under ratio each draft in turn may place the next token.",
            specdiff2.Params,
            specdiff2.SpecDiff2,
            ("match", "point-mass", "ratio"),
            kinds=("streak",),
        ),
        Method(
            "diffuspec",
            "DiffuSpec",
            "A diffusion pass predicts every position independently, so neighbouring tokens may not"
            " fit together; a beam search through the lattice of candidates scores paths with an"
            " n-gram model of the text so far. The paper's controller of the draft length hardly"
            " moves; length = accepted makes it follow what is accepted.",
            diffuspec.Params,
            diffuspec.DiffuSpec,
            why_not={"ratio": "its path is searched instead of sampled, so no q describes it"},
            kinds=("diffusion",),
        ),
        Method(
            "d2sd",
            "D²SD",
            "The confidence of the first block shows where the target will most likely reject it. A"
            " second pass, conditioned on the block up to each of those positions, drafts the rest"
            " again, and all branches are verified as one tree.",
            d2sd.Params,
            d2sd.D2SD,
        ),
        Method(
            "tree",
            "Best-first tree",
            "One drafter pass gives several candidates for every position, a Markov head conditions"
            " them on the token before, and the likeliest paths form a tree. Its size is the one"
            " with the most expected tokens per second at the measured cost of a target pass.",
            tree.Params,
            tree.TreeDrafter,
        ),
        Method(
            "best",
            "Everything together (ours)",
            "One tree from the drafter's candidates and from tokens that followed the same n-gram"
            " earlier in the text, their probabilities calibrated during the run. Its size is the"
            " one with the most expected tokens per second, and drafting is paused while plain"
            " decoding is faster. Where a pair has no drafter the n-grams draft alone.",
            best.Params,
            best.build,
            drafter_optional=True,
        ),
        Method(
            "block",
            "Block diffusion (DFlash)",
            "A small diffusion drafter is conditioned on the target's hidden states and fills a"
            " whole block of masks in one pass. The likeliest token at every mask, conditioned on"
            " the one before by a Markov head (DSpark) where the drafter has one, forms one chain,"
            " which the target verifies in one pass.",
            block.Params,
            block.BlockChain,
        ),
    )
}
