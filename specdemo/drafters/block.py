"""DFlash's chain: one pass over [anchor, mask, mask, …], the best guess at every mask is the draft
(arXiv 2602.06036).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frames
from .parts.params import MarkovHead, MethodParams


class Params(MethodParams):
    gamma: int = Field(
        7, ge=1, le=15, description="Masks per block, the tokens drafted per round, γ"
    )
    markov_head: MarkovHead = True


class BlockChain:
    """Every mask is filled at once; where the network has a Markov head each guess then follows
    from the one before. The chain is as long as the block.
    """

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.session = session(loaded)
        self.params = self.session.fit(params)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.session.start(capacity)

    def propose(self, context: Context) -> Draft:
        table = self.session.table(context, self.params.gamma, self.params.markov_head)
        rows = table.chain()
        return Draft.chain(
            [row[0][0] for row in rows],
            [row[0][1] for row in rows],
            "block",
            frames=frames(table) if context.record else [],
        )

    def observe(self, verdict: Verdict) -> None:
        pass
