"""SpecDiff-2: K drafts sampled from one pass, merged into a trie; the target's own probabilities
choose among them (arXiv 2511.00606).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import frame
from .parts.params import MethodParams
from .parts.trees import Trie, expected_streak

# candidates of a position that are sampled from; acceptance never uses q, so leaving out the tail
# costs nothing
KEPT = 64


class Params(MethodParams):
    gamma: int = Field(7, ge=1, le=15, description="Masks per block, the tokens of each draft, γ")
    drafts: int = Field(8, ge=1, le=32, description="Drafts sampled from one pass, K")
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


class SpecDiff2:
    """Hands over every draft with the nodes it runs through: under *point-mass* the engine keeps
    the one with the highest expected streak of the target's probabilities, under *match* the
    longest one that the target writes itself."""

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.session = session(loaded, "streak")
        self.params = self.session.fit(params)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.session.start(capacity)

    def propose(self, context: Context) -> Draft:
        logits = self.session.fill(context, self.params.gamma)
        rows = self.session.rows(logits, KEPT)
        trie, drafts = Trie(context.budget), []
        for ids, probs in self._draw(rows, context):
            nodes = trie.add(ids, probs, f"draft {len(drafts) + 1}")
            drafts.append(
                {
                    "ids": ids[: len(nodes)],
                    "nodes": nodes,
                    "score": expected_streak(probs[: len(nodes)]),
                }
            )
        frames = [frame([row[:8] for row in rows], label="block")] if context.record else []
        notes = {
            "drafts": drafts,
            "chosen": max(range(len(drafts)), key=lambda k: drafts[k]["score"]),
        }
        return trie.draft(draws=[one["nodes"] for one in drafts], frames=frames, notes=notes)

    def observe(self, verdict: Verdict) -> None:
        pass

    def _draw(
        self, rows: list[list[tuple[int, float]]], context: Context
    ) -> list[tuple[list[int], list[float]]]:
        """K drafts as (ids, the drafter's untempered probabilities). Independent of the target's
        coins: the drafter has its own generator.
        """
        import torch

        p, out = self.params, []
        if p.argmax:
            out.append(([row[0][0] for row in rows], [row[0][1] for row in rows]))
        more = p.drafts - len(out)
        if more:
            device = context.generator.device if context.generator is not None else "cpu"
            table = torch.zeros(len(rows), max(map(len, rows)), device=device)
            for i, row in enumerate(rows):
                table[i, : len(row)] = torch.tensor([prob for _, prob in row])
            drawn = torch.multinomial(
                table ** (1 / p.temperature), more, replacement=True, generator=context.generator
            ).tolist()
            for k in range(more):
                chosen = [row[drawn[i][k]] for i, row in enumerate(rows)]
                out.append(([t for t, _ in chosen], [prob for _, prob in chosen]))
        return out
