"""SpecDiff-2: K drafts sampled from one pass and merged into a trie, from which the target selects
(arXiv 2511.00606, section 5, algorithm 1; expected streak: eq. 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import Candidates, frame
from .parts.params import Coupled, MethodParams
from .parts.trees import Trie, expected_streak

if TYPE_CHECKING:
    from ..models.load import Loaded

# candidates of a position that are sampled from; acceptance never uses q, so leaving out the tail
# keeps it lossless
TOP_K = 64
SHOWN = 8  # candidates of a position that are recorded


class Params(MethodParams):
    gamma: int = Field(7, ge=1, le=15, description="γ: masks per block, the tokens of each draft")
    drafts: int = Field(8, ge=1, le=32, description="K: drafts sampled from one pass")
    temperature: float = Field(
        1.0,
        ge=0.1,
        le=4.0,
        description="Sampling temperature of the drafts (paper: 1.0 to 1.5)",
        json_schema_extra={"step": 0.1},
    )
    argmax: bool = Field(
        True, description="Make the first of the K drafts the argmax at every position"
    )
    coupled: Coupled = True


class SpecDiff2:
    """K drafts, each with the nodes of the trie it runs through. Under *point-mass* the engine
    keeps the draft with the highest expected streak by the target's probabilities; under *match* it
    keeps the longest path that the target writes itself.
    """

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network = open_context(loaded, "streak")
        self.params = self.network.fit(params)
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.network.start(capacity)

    def propose(self, context: Context) -> Draft:
        logits = self.network.fill(context, self.params.gamma)
        rows = self.network.top_candidates(logits, TOP_K)
        trie = Trie(context.budget)
        draws: list[list[int]] = []
        drafts: list[dict[str, Any]] = []
        for ids, probs in self._sample(rows, context):
            nodes = trie.add(ids, probs, f"draft {len(draws) + 1}")
            draws.append(nodes)
            score = expected_streak(probs[: len(nodes)])
            drafts.append({"ids": ids[: len(nodes)], "nodes": nodes, "drafter_score": score})
        frames = [frame([row[:SHOWN] for row in rows], label="block")] if context.record else []
        chosen = max(range(len(drafts)), key=lambda k: drafts[k]["drafter_score"])
        notes = {"drafts": drafts, "chosen": chosen}
        return trie.draft(draws=draws, frames=frames, notes=notes)

    def observe(self, verdict: Verdict) -> None:
        pass

    def _sample(
        self, rows: list[Candidates], context: Context
    ) -> list[tuple[list[int], list[float]]]:
        """K drafts as (ids, the drafter's probabilities at temperature 1), drawn with the drafter's
        own generator and so independently of the target.
        """
        import torch

        p = self.params
        out: list[tuple[list[int], list[float]]] = []
        if p.argmax:
            out.append(([row[0][0] for row in rows], [row[0][1] for row in rows]))
        more = p.drafts - len(out)
        if more:
            device = context.generator.device if context.generator is not None else "cpu"
            table = torch.zeros(len(rows), max(map(len, rows)), device=device)
            for i, row in enumerate(rows):
                table[i, : len(row)] = torch.tensor([prob for _, prob in row])
            table /= table.amax(1, keepdim=True)  # or a power of small numbers is 0
            drawn = torch.multinomial(
                table ** (1 / p.temperature), more, replacement=True, generator=context.generator
            ).tolist()
            for k in range(more):
                chosen = [row[drawn[i][k]] for i, row in enumerate(rows)]
                out.append(([t for t, _ in chosen], [prob for _, prob in chosen]))
        return out
