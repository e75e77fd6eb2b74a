"""The best-first tree of a block's marginals, as large as the measured cost of a target pass says
(DDTree, CaDDTree).
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frames
from .parts.params import MarkovHead, MethodParams
from .parts.trees import best_first, boundary_scores, branching, nodes_that_pay


class Params(MethodParams):
    gamma: int = Field(8, ge=1, le=15, description="Masks per block, the depth of the tree, γ")
    budget: int = Field(
        0,
        ge=0,
        le=63,
        description="Nodes per tree (0 = as many as pay at the measured cost of a target pass)",
    )
    markov_head: MarkovHead = True


class TreeDrafter:
    """One pass gives every depth its own distribution, a Markov head bends it by the token before;
    the likeliest paths form the tree.
    """

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.session = session(loaded)
        self.params = self.session.fit(params)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.session.start(capacity)

    def propose(self, context: Context) -> Draft:
        began = time.perf_counter()
        table = self.session.table(context, self.params.gamma, self.params.markov_head)
        nodes = best_first(
            *table.choices(), min(context.budget, self.params.budget or context.budget)
        )
        self.session.timed(began)
        if not self.params.budget:
            nodes = nodes[
                : nodes_that_pay([n.weight for n in nodes], context.row_ms, self.session.ms)[0]
            ]
        draft = Draft(
            [n.token for n in nodes],
            [n.parent for n in nodes],
            [n.prob for n in nodes],
            origin=["block"] * len(nodes),
        )
        if context.record:
            draft.frames = frames(table)
            draft.notes = {
                "expected": 1 + sum(n.weight for n in nodes),
                "boundaries": boundary_scores(draft.frames[-1].conf),
                "branches": branching(draft.parent),
            }
        return draft

    def observe(self, verdict: Verdict) -> None:
        pass
