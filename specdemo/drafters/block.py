"""Block diffusion: one pass over [anchor, mask, mask, …], the likeliest token at every mask is the
draft (DFlash, arXiv 2602.06036, section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frames
from .parts.params import Coupled, MarkovHead, MethodParams, depth

if TYPE_CHECKING:
    from ..models.load import Loaded


class Params(MethodParams):
    gamma: int = depth(7, "γ: masks per block, the tokens drafted per round")
    markov_head: MarkovHead = True
    confidence: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="End the draft before a token whose predicted acceptance is lower (DSpark"
        " drafters with a confidence head; 0 = never)",
        json_schema_extra={"step": 0.05},
    )
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}


class BlockChain:
    """A chain as long as the block. Where the drafter has a Markov head each token is conditioned
    on the one before it (DSpark, arXiv 2607.05147).
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
        table = self.network.table(context, self.params.gamma, self.params.markov_head)
        rows = table.chain()
        short = (i for i, sure in enumerate(table.confidence) if sure < self.params.confidence)
        rows = rows[: next(short, len(rows))]
        return Draft.chain(
            [row[0][0] for row in rows],
            [row[0][1] for row in rows],
            "block",
            frames=frames(table) if context.record else [],
        )

    def observe(self, verdict: Verdict) -> None:
        pass
