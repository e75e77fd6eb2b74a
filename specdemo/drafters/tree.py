"""The best-first tree of a block's marginals, as large as the measured cost of a target pass says
(DDTree, CaDDTree).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from .parts.base import Context, Draft, Verdict, follows, number
from .parts.candidates import frames
from .parts.trees import best_first, boundary_scores, branching, nodes_that_pay


@dataclass(frozen=True)
class Params:
    gamma: int = number(8, 1, 15, "Masks in the block, so the depth of the tree")
    budget: int = number(
        0, 0, 63, "Nodes of the tree; 0 takes as many as pay by the measured cost of a target pass"
    )
    follow: str = follows()


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
        table = self.session.table(context, self.params.gamma, self.params.follow == "yes")
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
