"""Ours: one tree from everything at hand, as wide as it pays, and no tree at all where none pays.

D²SD asks *where* a block will be refused, and a best-first tree answers it node by node: it
branches where the confidence drops. The diffusion network says *which* siblings, each following
from its parent where it has a Markov head, judged by how often the same confidence came true in
this run. What followed the same words earlier in the text costs nothing and joins the tree at every
node. The measured cost of a target pass says *how many* nodes. Where rounds with the network write
no more than they cost, it sleeps while copies and plain rounds go on, and is tried again now and
then. D²SD's second pass is left out: replayed on the embedded pair (36 prompts) it writes 6 % more
tokens a round and costs another draft pass, a tenth to a fifth of the target's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from .parts.adaptive import Calibration, Cell, Pace, Smooth
from .parts.base import Context, Draft, Verdict
from .parts.candidates import Table, frames
from .parts.ngram import Followers
from .parts.params import MarkovHead, MethodParams
from .parts.trees import Choice, Node, best_first, boundary_scores, branching, nodes_that_pay

# how often a copied token is right after 1, 2, … words that match, until the run says otherwise
COPIED = (0.12, 0.3, 0.45, 0.55, 0.65, 0.7, 0.75, 0.8)
SECOND = 0.35  # the same for the next follower, relative to the one before it
FLOOR = 0.004  # paths less likely than this are not worth looking at
DEEPEST = 24  # longest path, which only a copy reaches

NOTHING = Table([])  # what a sleeping network says

Judged = tuple[int, float, Cell]  # token, how likely it is, where to learn about it


class Params(MethodParams):
    gamma: int = Field(
        8, ge=1, le=15, description="Masks per block, the depth of the drafter's candidates, γ"
    )
    copies: int = Field(
        3, ge=0, le=8, description="Max n-gram continuations added per node (0 = off)"
    )
    adaptive: bool = Field(True, description="Pause drafting while it does not pay")
    markov_head: MarkovHead = True


class Plan:
    """Choices for :func:`best_first`; a state is (depth, the last words of the path)."""

    def __init__(self, table: Table, text: Followers | None, known: Calibration) -> None:
        """
        Args:
            table: the network's candidates, empty while it sleeps.
            text: what followed which words so far; None leaves copies out.
            known: what this run has taught about such statements.
        """
        self.table, self.text, self.known = table, text, known
        self._judged: dict[tuple[str, int, int], list[Judged]] = {}

    def expand(self, state: tuple[int, tuple[int, ...]]) -> list[Choice]:
        d, tail = state
        followers, length = (
            self.text.after(tail) if self.text is not None and d < DEEPEST else ((), 0)
        )
        found = (
            self._with_copies(d, followers, COPIED[min(length, len(COPIED)) - 1], tail[-1])
            if followers
            else self._network("block", d, tail[-1])
        )
        rest = tail[1:]
        return [(token, p, (d + 1, (*rest, token)), cell) for token, p, cell in found]

    def _network(self, kind: str, d: int, before: int) -> list[Judged]:
        """The network's candidates at one depth behind the token ``before``, likeliest first;
        "beside" a copy they are judged apart.
        """
        if d >= len(self.table.rows):
            return []
        row = self.table.after(d, before)
        key = (kind, d, -1 if row is None else before)
        found = self._judged.get(key)
        if found is None:
            judge = self.known.judge
            found = self._judged[key] = sorted(
                ((token, *judge(kind, d + 1, p)) for token, p in row or self.table.rows[d]),
                key=_likeliest,
            )
        return found

    def _with_copies(
        self, d: int, followers: Sequence[int], sure: float, before: int
    ) -> list[Judged]:
        """The network's candidates beside copied ones: a token both name takes the odds of either
        being right, the others share what is left.
        """
        stated = {token: sure * SECOND**rank for rank, token in enumerate(followers)}
        left, named, others = 1.0, [], []
        for token, p, cell in self._network("beside", d, before):
            if token not in stated:
                others.append((token, p, cell))
                continue
            both, shared = self.known.judge("both", d + 1, 1 - (1 - p) * (1 - stated.pop(token)))
            left *= (1 - both) / max(1 - p, 1e-3)
            named.append((token, both, shared))
        for token, p in stated.items():
            copied, cell = self.known.judge("copy", d + 1, p)
            left *= 1 - copied
            named.append((token, copied, cell))
        left = min(left, 1.0)
        named += [(token, left * p, cell) for token, p, cell in others]
        named.sort(key=_likeliest)
        return named


def _likeliest(judged: Judged) -> float:
    return -judged[1]


class Best:
    """One round: free copies are weighed first; if the network is worth its pass its marginals
    join; then as many nodes as pay.
    """

    def __init__(self, loaded: Any, params: Params) -> None:
        from .parts.block_context import session

        self.session = session(loaded)
        self.params = self.session.fit(params)
        self.layer_ids, self.weights = self.session.layer_ids, self.session.weights

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        self.session.start(capacity)
        self.text = Followers(len(COPIED), self.params.copies) if self.params.copies else None
        self.known, self.pace = Calibration(), Pace()
        self.draft_ms, self.rows, self.slowness = Smooth(), Smooth(), Smooth()
        self.rounds = 0
        self.nodes: list[Node] = []
        self.ran, self.took, self.row_ms = False, 0.0, None

    def propose(self, context: Context) -> Draft:
        began = time.perf_counter()
        if self.text is not None:
            self.text.follow(context.ids)
        free, free_rate = self._grow(NOTHING, context)
        self.ran = self._wakes(context, free, free_rate)
        table = NOTHING
        if self.ran:
            table = self.session.table(context, self.params.gamma, self.params.markov_head)
            self.nodes, _ = self._grow(table, context)
        else:
            self.nodes = free
        self.row_ms = context.row_ms
        self.took = (time.perf_counter() - began) * 1e3
        nodes = self.nodes
        draft = Draft(
            [n.token for n in nodes],
            [n.parent for n in nodes],
            [n.prob for n in nodes],
            origin=[_WORDS[n.tag.kind] for n in nodes],
        )
        if context.record:
            self._explain(draft, table)
        return draft

    def observe(self, verdict: Verdict) -> None:
        if self.row_ms is None:
            return  # the engine did without a draft
        right, above = set(verdict.path), {-1, *verdict.path}
        for i, node in enumerate(self.nodes):
            if node.parent in above:
                self.known.learn(node.tag, i in right)
        pass_ms, plain_ms = self.row_ms(len(self.nodes) + 1), self.row_ms(1)
        self.slowness.add(verdict.verify_seconds * 1e3 / pass_ms if verdict.verify_seconds else 1.0)
        self.rounds += 1
        if self.ran and self.rounds > 1:  # the first one reads the whole prompt
            self.draft_ms.add(self.took)
            self.rows.add(len(self.nodes) + 1)
        self.pace.note(
            self.ran,
            len(verdict.path) + 1,
            pass_ms + self._draft_cost() * self.ran,
            plain_ms,
            1 + sum(n.weight for n in self.nodes),
        )
        self.row_ms = None

    def _grow(self, table: Table, context: Context) -> tuple[list[Node], float]:
        """The tree that pays best with this table, and its expected tokens per millisecond."""
        plan = Plan(table, self.text, self.known)
        tail = tuple(context.ids[-len(COPIED) :])
        nodes = best_first(plan.expand, (0, tail), context.budget, FLOOR)
        count, rate = nodes_that_pay(
            [n.weight for n in nodes], context.row_ms, self._draft_cost() if table.rows else 0.0
        )
        return nodes[:count], rate

    def _draft_cost(self) -> float:
        """Milliseconds of a draft, on the scale of the cost curve: the machine may be slower now
        than when that was measured.
        """
        return self.draft_ms.value / (self.slowness.value or 1.0)

    def _wakes(self, context: Context, free: list[Node], free_rate: float) -> bool:
        if not self.params.adaptive:
            return True
        with_ms = (
            context.row_ms(min(round(self.rows.value) or 12, context.budget + 1))
            + self._draft_cost()
        )
        free_ms = context.row_ms(len(free) + 1)
        return self.pace.wants(with_ms, context.row_ms(1), free_rate * free_ms, free_ms)

    def _explain(self, draft: Draft, table: Table) -> None:
        expected = 1 + sum(n.weight for n in self.nodes)
        draft.notes = {"expected": expected}
        if table.rows:
            draft.frames = frames(table)
            draft.notes |= {
                "boundaries": boundary_scores(draft.frames[-1].conf),
                "branches": branching(draft.parent),
            }
            return
        slow = f"rounds with the network have lately written {self.pace.expected:.2f} tokens"
        if draft.tokens:
            draft.notes["why"] = (
                f"the network rests ({slow}); copies from the text are free and promise"
                f" {expected:.2f}"
            )
        else:
            draft.notes["why"] = (
                f"a plain round: {slow}, less than they cost, and the last words stand nowhere else"
                " in the text"
            )


_WORDS = {"block": "block", "beside": "block", "both": "block and copy", "copy": "copy"}
