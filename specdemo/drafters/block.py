"""DFlash's chain: one pass over [anchor, mask, mask, …], the best guess at every mask is the draft (arXiv 2602.06036)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import Context, Draft, Verdict, number


@dataclass(frozen=True)
class Params:
    gamma: int = number(7, 1, 15, "Masks in the block, so drafted tokens a round")


class BlockChain:
    """Every mask is filled at once, independently of the others; the chain is as long as the block."""

    def __init__(self, loaded: Any, params: Params) -> None:
        from .session import session

        self.session = session(loaded)
        self.gamma = self.session.check_gamma(params.gamma)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.session.start(capacity)

    def propose(self, context: Context) -> Draft:
        from .session import frame

        rows = self.session.rows(self.session.fill(context, self.gamma))
        frames = [frame(rows, label="block")] if context.record else []
        return Draft.chain([row[0][0] for row in rows], [row[0][1] for row in rows], "block", frames=frames)

    def observe(self, verdict: Verdict) -> None:
        pass
