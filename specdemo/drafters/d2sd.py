"""D²SD: a second diffusion pass drafts again from the positions where the first draft is most
likely rejected (arXiv 2606.04446; boundary scores: eq. 4; cascade attention: section 3).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ..errors import UserError
from .parts.base import Context, Draft, Verdict
from .parts.candidates import Candidates, frame
from .parts.params import DEEPEST, Coupled, MarkovHead, MethodParams, depth
from .parts.trees import Trie, boundary_scores

if TYPE_CHECKING:
    from ..models.load import Loaded


class Params(MethodParams):
    gamma: int = depth(7, "γ: masks per block (paper: 15 to 31)")
    branches: int = Field(
        4,
        ge=0,
        le=DEEPEST,
        description="K: second drafts per round, at the likeliest rejection points",
    )
    verify: Literal["trie", "cascade"] = Field(
        "trie",
        description="Verification attention: trie is bitwise equal to plain decoding; cascade (the"
        " paper's) is faster, but near-ties may resolve differently",
    )
    ban: bool = Field(
        True,
        description="Where one network makes both passes: no second draft repeats the token that is"
        " doubted, and none begins at the anchor, which would be the first pass again",
    )
    markov_head: MarkovHead = True
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}

    def most_nodes(self) -> int:
        return self.gamma + sum(self.gamma - i for i in range(self.branches))

    def check(self) -> None:
        if self.branches > self.gamma:
            raise UserError(
                f"branches ({self.branches}) must not be above gamma ({self.gamma}), the number of"
                " boundaries; lower branches or raise gamma."
            )


class D2SD:
    """The confidence of the first block gives the likeliest rejection points; the variable-prefix
    drafter, given the block up to each of them, drafts the rest again.

    All branches are one batched pass. Block and branches form one trie, so a shared prefix is
    verified once.
    """

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.first = open_context(loaded)
        self.second = open_context(loaded, "vp", self.first) if params.branches else self.first
        self.params = params = self.first.fit(params, other=self.second)
        self.bans = params.ban and self.second is self.first
        self.layer_ids, self.weights = self.first.layer_ids, self.first.weights
        if self.second is not self.first:
            self.layer_ids = self.first.layer_ids or self.second.layer_ids
            if self.second.layer_ids not in ((), self.layer_ids):
                raise UserError(
                    "The two D²SD drafters of this pair are conditioned on different target"
                    " layers; use two with the same layers."
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
        for drafter in dict.fromkeys((self.first, self.second)):
            drafter.catch_up(context, features)
        # 1) the first block, and the likeliest rejection points in it
        table = self.first.table(
            context, self.params.gamma, self.params.markov_head, catch_up=False
        )
        rows = table.chain()
        first, conf = [row[0][0] for row in rows], [row[0][1] for row in rows]
        scores = boundary_scores(conf)
        # one network says the same of the same block: only what differs from it is worth a branch
        choices = range(1 if self.bans else 0, len(scores))
        points = sorted(choices, key=lambda i: -scores[i])[: self.params.branches]
        # 2) a branch at each of them, all merged into one trie
        trie = Trie(context.budget)
        trie.add(first, conf, "block")
        branches = self._branches(context, first, points)
        for i, branch in zip(points, branches, strict=True):
            trie.add(
                first[:i] + [row[0][0] for row in branch],
                conf[:i] + [row[0][1] for row in branch],
                "branch",
            )
        # 3) what is recorded
        frames, notes = [], {}
        if context.record:
            frames = [frame(rows, label="block", steps=2 if points else 1)] + [
                frame(rows[:i] + branch, label=f"branch after {i}", step=1, steps=2, row=n)
                for n, (i, branch) in enumerate(zip(points, branches, strict=True), 1)
            ]
            notes = {"boundaries": scores, "branches": points}
        return trie.draft(frames=frames, notes=notes, cascade=self.params.verify == "cascade")

    def observe(self, verdict: Verdict) -> None:
        pass

    def _branches(
        self, context: Context, first: list[int], points: list[int]
    ) -> list[list[Candidates]]:
        """The second pass: for every rejection point i the candidates of the masks behind
        ``[anchor, t1 … ti]``.
        """
        from .parts.block_context import MASK

        gamma = len(first)
        if not points:
            return []
        blocks = [[context.ids[-1], *first[:i]] + [MASK] * (gamma - i) for i in points]
        hidden = self.second.hidden(blocks, len(context.ids) - 1)
        slots = [(b, k) for b, i in enumerate(points) for k in range(i + 1, gamma + 1)]
        ends = list(itertools.accumulate((gamma - i for i in points), initial=0))
        before = {end: blocks[b][i] for b, (end, i) in enumerate(zip(ends, points, strict=False))}
        states = hidden[[b for b, _ in slots], [k for _, k in slots]]
        scores = self.second.scores(states, context, [len(context.ids) - 1 + k for _, k in slots])
        if self.bans:
            columns = [self.second.column(first[i]) for i in points]
            scores[ends[:-1], columns] = float("-inf")
        table = self.second.to_table(states, self.params.markov_head, before, scores)
        return [table.chain(start, stop) for start, stop in itertools.pairwise(ends)]
