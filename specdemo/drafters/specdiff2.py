"""SpecDiff-2: K drafts sampled from one pass and merged into a trie (arXiv 2511.00606, section 5,
algorithm 1; expected streak: eq. 7).

What the target then does with them is the rule's: *point-mass* selects one draft by the target's
probabilities (the paper's self-selection), *match* walks the whole trie, *ratio* lets each draft in
turn place the next token (recursive rejection, as the authors' code does by default). Every node of
a trie is verified in any case, so selection, which then uses one draft alone, never keeps more in
expectation than a walk through all of them; docs/methods.md has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from .parts.base import Context, Draft, Verdict
from .parts.candidates import Candidates, frame
from .parts.params import Coupled, MethodParams, depth
from .parts.trees import Trie, expected_streak

if TYPE_CHECKING:
    import torch

    from ..models.load import Loaded

# candidates of a position that are sampled from; q, where a rule uses it, is that of these alone
TOP_K = 64
SHOWN = 8  # candidates of a position that are recorded


class Params(MethodParams):
    gamma: int = depth(7, "γ: masks per block, the tokens of each draft (paper: 16 or 32)")
    drafts: int = Field(8, ge=1, le=32, description="K: drafts sampled from one pass (paper: 8)")
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

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}

    def most_nodes(self) -> int:
        return self.drafts * self.gamma


class SpecDiff2:
    """K drafts, each with the nodes of the trie it runs through, and under *ratio* with the
    distributions that its tokens were sampled from.
    """

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network = open_context(loaded, "streak")
        self.params = self.network.fit(params)
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights
        self.vocab_size = loaded.model.config.vocab_size

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.network.start(capacity)

    def propose(self, context: Context) -> Draft:
        logits = self.network.fill(context, self.params.gamma)
        rows = self.network.top_candidates(logits, TOP_K)
        trie = Trie(context.budget)
        draws: list[list[int]] = []
        drafts: list[dict[str, Any]] = []
        table = self._table(rows, context)
        for ids, probs in self._sample(rows, table, context):
            nodes = trie.add(ids, probs, f"draft {len(draws) + 1}")
            draws.append(nodes)
            score = expected_streak(probs[: len(nodes)])
            drafts.append({"ids": ids[: len(nodes)], "nodes": nodes, "drafter_score": score})
        frames = [frame([row[:SHOWN] for row in rows], label="block")] if context.record else []
        draft = trie.draft(draws=draws, frames=frames, notes={"drafts": drafts})
        if context.rule == "ratio":
            draft.q = self._proposals(rows, table, len(draws))
        return draft

    def observe(self, verdict: Verdict) -> None:
        pass

    def _table(self, rows: list[Candidates], context: Context) -> torch.Tensor:
        """``[n, C]`` what the candidates of every position are sampled by: their probabilities at
        the drafts' temperature, a factor apart; 0 behind a row's end.
        """
        import torch

        device = context.generator.device if context.generator is not None else "cpu"
        table = torch.zeros(len(rows), max(map(len, rows)), device=device)
        for i, row in enumerate(rows):
            table[i, : len(row)] = torch.tensor([prob for _, prob in row])
        table /= table.amax(1, keepdim=True)  # or a power of small numbers is 0
        return table ** (1 / self.params.temperature)

    def _proposals(
        self, rows: list[Candidates], table: torch.Tensor, count: int
    ) -> list[torch.Tensor]:
        """Of each of ``count`` drafts the distributions ``[n, V]`` of its tokens: one-hot for the
        argmax, which nothing samples; the others share one.
        """
        import torch

        shape = (len(rows), self.vocab_size)
        sampled, argmax = torch.zeros(2, *shape, device=self.network.device)
        chances = (table / table.sum(1, keepdim=True)).to(self.network.device)
        for i, row in enumerate(rows):
            sampled[i, [token for token, _ in row]] = chances[i, : len(row)]
            argmax[i, row[0][0]] = 1.0
        first = [argmax] if self.params.argmax else []
        return [*first, *[sampled] * (count - len(first))]

    def _sample(
        self, rows: list[Candidates], table: torch.Tensor, context: Context
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
            drawn = torch.multinomial(
                table, more, replacement=True, generator=context.generator
            ).tolist()
            for k in range(more):
                chosen = [row[drawn[i][k]] for i, row in enumerate(rows)]
                out.append(([t for t, _ in chosen], [prob for _, prob in chosen]))
        return out
