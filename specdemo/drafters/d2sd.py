"""D²SD: a second diffusion pass starts again at the places where the first draft will most likely
be refused (arXiv 2606.04446).
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

from pydantic import Field

from ..errors import UserError
from .parts.base import Context, Draft, Verdict
from .parts.candidates import frame
from .parts.params import MarkovHead, MethodParams
from .parts.trees import Trie, boundary_scores


class Params(MethodParams):
    gamma: int = Field(7, ge=1, le=15, description="Masks per block, γ (paper: 15)")
    branches: int = Field(
        4, ge=0, le=15, description="Second drafts per round, K, at the likeliest rejection points"
    )
    verify: Literal["trie", "cascade"] = Field(
        "trie",
        description="Verification attention: trie is bitwise equal to plain decoding; cascade (the"
        " paper's) is faster, but near-ties may resolve differently",
    )
    markov_head: MarkovHead = True

    def check(self) -> None:
        if self.branches > self.gamma:
            raise UserError(
                f"branches ({self.branches}) must not be above gamma ({self.gamma}), the number of"
                " boundaries; lower branches or raise gamma."
            )


class D2SD:
    """Confidence says where the first block will fail; the variable-prefix network, shown the block
    up to there, drafts the rest anew.

    All branches are one batched pass. Block and branches form one trie, so a shared prefix is
    verified once.
    """

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.first = session(loaded)
        self.second = session(loaded, "vp", self.first) if params.branches else self.first
        self.params = params = self.first.fit(params, beside=self.second)
        self.layer_ids, self.weights = self.first.layer_ids, self.first.weights
        if self.second is not self.first:
            if self.second.layer_ids != self.first.layer_ids:
                raise UserError(
                    "The two D²SD networks of this pair read different target layers; use two that"
                    " read the same."
                )
            self.weights = f"first pass: {self.first.weights}; second pass: {self.second.weights}"
        elif params.branches:
            self.weights += ", for both passes"

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.first.start(capacity)
        if self.second is not self.first:
            self.second.start(capacity)

    def propose(self, context: Context) -> Draft:
        features = context.take_features()
        for one in dict.fromkeys((self.first, self.second)):
            one.extend(*features)
        table = self.first.table(context, self.params.gamma, self.params.markov_head, fresh=False)
        rows = table.chain()
        guess, conf = [row[0][0] for row in rows], [row[0][1] for row in rows]
        scores = boundary_scores(conf)
        where = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.params.branches]
        trie = Trie(context.budget)
        trie.add(guess, conf, "block")
        # the branches show what they changed of it
        frames = [frame(rows, label="block")] if context.record else []
        for n, (i, again) in enumerate(zip(where, self._again(context, guess, where), strict=True)):
            trie.add(
                guess[:i] + [row[0][0] for row in again],
                conf[:i] + [row[0][1] for row in again],
                "branch",
            )
            if context.record:
                frames.append(
                    frame(rows[:i] + again, label=f"branch after {i}", step=1, steps=2, row=n + 1)
                )
        notes = {}
        if context.record:
            if where:
                frames[0].steps = 2
            notes = {"boundaries": scores, "branches": where}
        return trie.draft(frames=frames, notes=notes, cascade=self.params.verify == "cascade")

    def observe(self, verdict: Verdict) -> None:
        pass

    def _again(
        self, context: Context, guess: list[int], where: list[int]
    ) -> list[list[list[tuple[int, float]]]]:
        """The second pass: for every boundary i the rows of the masks behind ``[anchor, t1 …
        ti]``.
        """
        from .parts.block_context import MASK

        gamma = len(guess)
        if not where:
            return []
        blocks = [[context.ids[-1], *guess[:i]] + [MASK] * (gamma - i) for i in where]
        hidden = self.second.hidden(blocks, len(context.ids) - 1)
        slots = [(b, k) for b, i in enumerate(where) for k in range(i + 1, gamma + 1)]
        table = self.second.tabled(
            hidden[[b for b, _ in slots], [k for _, k in slots]], self.params.markov_head
        )
        ends = list(itertools.accumulate((gamma - i for i in where), initial=0))
        return [table.chain(*edge) for edge in itertools.pairwise(ends)]
