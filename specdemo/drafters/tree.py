"""The best-first tree of one block's candidates (DDTree, arXiv 2604.12989), as large as pays at the
measured cost of a target pass (CaDDTree, arXiv 2606.01813).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frames
from .parts.params import MOST_NODES, Coupled, MarkovHead, MethodParams, depth
from .parts.trees import (
    best_first,
    boundary_scores,
    branch_depths,
    expected_tokens,
    nodes_that_pay,
    tree_draft,
)

if TYPE_CHECKING:
    from ..models.load import Loaded


class Params(MethodParams):
    gamma: int = depth(8, "γ: masks per block, the depth of the tree")
    budget: int = Field(
        0,
        ge=0,
        le=MOST_NODES,
        description="Nodes per tree (0 = as many as pay at the measured cost of a target pass)",
        json_schema_extra={"limit": "the widest pass that is tried, less the anchor"},
    )
    markov_head: MarkovHead = True
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma, "budget": self.budget}


class TreeDrafter:
    """One pass gives every depth its distribution, which a Markov head conditions on the token
    before; the likeliest paths form the tree.
    """

    drafts_next = True

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network = open_context(loaded)
        self.params = self.network.fit(params)
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.network.start(capacity)

    def propose(self, context: Context) -> Draft:
        began = time.perf_counter()
        table = self.network.table(context, self.params.gamma, self.params.markov_head)
        budget = min(context.budget, self.params.budget or context.budget)
        nodes = best_first(*table.choices(), budget)
        self.network.add_pass_time(began)
        if not self.params.budget:
            draft_ms = self.network.pass_ms.value
            count, _ = nodes_that_pay([n.path_prob for n in nodes], context.pass_ms, draft_ms)
            nodes = nodes[:count]
        full = not self.params.budget and len(nodes) == budget
        draft = tree_draft(nodes, ["block"] * len(nodes), full)
        if context.record:
            draft.frames = frames(table)
            draft.notes = {
                "expected": expected_tokens(nodes),
                "boundaries": boundary_scores(table.chain_probs()),
                "branches": branch_depths(draft.parent),
            }
        return draft

    def observe(self, verdict: Verdict) -> None:
        pass
