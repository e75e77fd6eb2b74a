"""Ours: one tree from the drafter's candidates and from n-grams of the text, as large as pays at
the measured cost of a target pass, and no draft where none pays.

A best-first tree (DDTree, arXiv 2604.12989) branches where the confidence drops, node by node; the
boundary scores of D²SD are recorded for display only. The drafter's candidates, conditioned
on the parent where it has a Markov head, are calibrated by how often the same confidence was right
in this run. Tokens that followed the same n-gram earlier in the text cost nothing and are
candidates at every node. The measured cost of a target pass decides the number of nodes (CaDDTree,
arXiv 2606.01813). While drafting does not pay it is paused, n-gram copies and plain rounds go on,
and it is tried again from time to time. There is no second pass as in D²SD: replayed on the
embedded pair (36 prompts), with the block drafter's weights for it as there are none trained on
variable prefixes, it writes 6 % more tokens a round, but costs a second draft pass, which takes a
tenth to a fifth of the time of a target pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from ..errors import UserError
from .parts.adaptive import EMA, Calibration, Cell, DraftingPolicy, Source
from .parts.base import Context, Draft, NotFinite, Verdict
from .parts.candidates import CandidateTable, frames
from .parts.ngram import ContinuationIndex
from .parts.params import Coupled, MarkovHead, MethodParams, depth
from .parts.trees import (
    Choice,
    Node,
    best_first,
    boundary_scores,
    branch_depths,
    expected_tokens,
    nodes_that_pay,
    tree_draft,
)

if TYPE_CHECKING:
    from ..models.load import Loaded

# prior probability that a copied token is right after 1, 2, … matching tokens
COPY_PRIOR = (0.12, 0.3, 0.45, 0.55, 0.65, 0.7, 0.75, 0.8)
RANK_DECAY = 0.35  # prior of the next continuation of an n-gram, relative to the one before it
MIN_PATH_PROB = 0.004  # paths less likely than this are not searched
MAX_DEPTH = 24  # longest path, which only copies reach
FIRST_ROWS = 12  # rows assumed for a drafted tree before one was verified

EMPTY_TABLE = CandidateTable([])  # the candidates of a round without a draft pass

# what the page shows for each source of a candidate
ORIGINS: dict[Source, str] = {
    "block": "block",
    "beside": "block",
    "both": "block and copy",
    "copy": "copy",
}

Estimate = tuple[int, float, Cell]  # token, its calibrated probability, the cell to learn in


class Params(MethodParams):
    gamma: int = depth(8, "γ: masks per block, the depth of the drafter's candidates")
    copies: int = Field(
        3, ge=0, le=8, description="Max n-gram continuations added per node (0 = off)"
    )
    adaptive: bool = Field(True, description="Pause drafting while it does not pay")
    markov_head: MarkovHead = True
    coupled: Coupled = True

    def needs(self) -> dict[str, int]:
        return {"gamma": self.gamma}


class TreeExpander:
    """Choices for :func:`.trees.best_first`; a state is (depth, the last tokens of the path)."""

    def __init__(
        self,
        table: CandidateTable,
        continuations: ContinuationIndex | None,
        calibration: Calibration,
    ) -> None:
        """
        Args:
            table: the drafter's candidates, empty in a round without a draft pass.
            continuations: of the n-grams of the text so far; None leaves copies out.
            calibration: what this run has taught about stated probabilities.
        """
        self.table, self.continuations, self.calibration = table, continuations, calibration
        self._known: dict[tuple[Source, int, int], list[Estimate]] = {}

    def expand(self, state: tuple[int, tuple[int, ...]]) -> list[Choice]:
        depth, tail = state
        tokens, length = (
            self.continuations.after(tail)
            if self.continuations is not None and depth < MAX_DEPTH
            else ((), 0)
        )
        if tokens:
            prior = COPY_PRIOR[min(length, len(COPY_PRIOR)) - 1]
            found = self._with_copies(depth, tokens, prior, tail[-1])
        else:
            found = self._drafted("block", depth, tail[-1])
        rest = tail[1:]
        return [(token, p, (depth + 1, (*rest, token)), cell) for token, p, cell in found]

    def _drafted(self, source: Source, depth: int, prev: int) -> list[Estimate]:
        """The drafter's candidates at one depth after the token ``prev``, likeliest first; those
        beside copies are calibrated apart.
        """
        if depth >= len(self.table.rows):
            return []
        row = self.table.conditional(depth, prev)
        key = (source, depth, -1 if row is None else prev)
        found = self._known.get(key)
        if found is None:
            estimate = self.calibration.estimate
            found = self._known[key] = sorted(
                (
                    (token, *estimate(source, depth + 1, p))
                    for token, p in row or self.table.rows[depth]
                ),
                key=_likeliest,
            )
        return found

    def _with_copies(
        self, depth: int, tokens: Sequence[int], prior: float, prev: int
    ) -> list[Estimate]:
        """The drafter's candidates beside copied ``tokens``. A token that both propose is right if
        either is (noisy or); the drafter's other candidates share the probability that is left.
        """
        copied = {token: prior * RANK_DECAY**rank for rank, token in enumerate(tokens)}
        left, named, others = 1.0, [], []
        for token, p, cell in self._drafted("beside", depth, prev):
            if token not in copied:
                others.append((token, p, cell))
                continue
            stated = 1 - (1 - p) * (1 - copied.pop(token))
            both, cell = self.calibration.estimate("both", depth + 1, stated)
            left *= (1 - both) / max(1 - p, 1e-3)
            named.append((token, both, cell))
        for token, stated in copied.items():
            p, cell = self.calibration.estimate("copy", depth + 1, stated)
            left *= 1 - p
            named.append((token, p, cell))
        left = min(left, 1.0)
        named += [(token, left * p, cell) for token, p, cell in others]
        named.sort(key=_likeliest)
        return named


def _likeliest(estimate: Estimate) -> float:
    return -estimate[1]


class Copies:
    """One round: the tree of n-gram copies, as many nodes as pay. What the method does with a pair
    that has no diffusion drafter.

    Raises:
        UserError: copies are turned off.
    """

    layer_ids: tuple[int, ...] = ()
    weights = "none (n-gram copies alone, as the pair has no diffusion drafter)"

    def __init__(self, loaded: Loaded, params: Params) -> None:
        self.params = params
        if not (params.copies or _has_drafter(loaded)):
            raise UserError(
                f"The pair {loaded.pair.id} has no diffusion drafter, and copies = 0 leaves nothing"
                " to draft from; choose copies from 1, or another pair."
            )

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        copies = self.params.copies
        self.continuations = ContinuationIndex(len(COPY_PRIOR), copies) if copies else None
        self.calibration = Calibration()
        self.nodes: list[Node] = []

    def propose(self, context: Context) -> Draft:
        if self.continuations is not None:
            self.continuations.extend_to(context.ids)
        self.nodes, _ = self._grow(EMPTY_TABLE, context)
        draft = self._draft(context)
        if context.record:
            expected = expected_tokens(self.nodes)
            draft.notes = {"expected": expected, "why": _why(draft, expected)}
        return draft

    def observe(self, verdict: Verdict) -> None:
        """Learn from every node whose parent was accepted."""
        accepted, reached = set(verdict.path), {-1, *verdict.path}
        for i, node in enumerate(self.nodes):
            if node.parent in reached:
                self.calibration.learn(node.tag, i in accepted)

    def _draft(self, context: Context) -> Draft:
        full = len(self.nodes) == context.budget
        return tree_draft(self.nodes, [ORIGINS[n.tag.source] for n in self.nodes], full)

    def _grow(
        self, table: CandidateTable, context: Context, draft_ms: float = 0.0
    ) -> tuple[list[Node], float]:
        """The tree that pays best with this table, and its expected tokens per millisecond."""
        expander = TreeExpander(table, self.continuations, self.calibration)
        tail = tuple(context.ids[-len(COPY_PRIOR) :])
        nodes = best_first(expander.expand, (0, tail), context.budget, MIN_PATH_PROB)
        count, rate = nodes_that_pay([n.path_prob for n in nodes], context.pass_ms, draft_ms)
        return nodes[:count], rate


def _has_drafter(loaded: Loaded) -> bool:
    from ..models.kinds import role_for

    return role_for("block", loaded.pair.drafters) is not None


def _why(draft: Draft, expected: float) -> str:
    """Of a round without a draft pass where there is no drafter."""
    if draft.tokens:
        return f"n-gram copies cost nothing and promise {expected:.2f}"
    return "no n-gram of the text continues here"


def build(loaded: Loaded, params: Params) -> Copies:
    """:class:`Best`, or where the pair has no drafter for it :class:`Copies`."""
    return (Best if _has_drafter(loaded) else Copies)(loaded, params)


class Best(Copies):
    """One round: first the tree of n-gram copies alone; if a draft pass pays, the tree of copies
    and the drafter's candidates; of either, as many nodes as pay.
    """

    def __init__(self, loaded: Loaded, params: Params) -> None:
        from .parts.block_context import open_context

        self.network = open_context(loaded)
        super().__init__(loaded, self.network.fit(params))
        self.layer_ids, self.weights = self.network.layer_ids, self.network.weights
        self.drafted, self.rounds = False, 0

    def start(self, prompt_ids: list[int], capacity: int) -> None:
        super().start(prompt_ids, capacity)
        self.network.start(capacity)
        self.policy = DraftingPolicy()
        # of rounds with a draft pass: milliseconds of the draft, rows of the tree
        self.draft_ms, self.tree_rows = EMA(), EMA()
        self.slowdown = EMA()  # measured milliseconds of a target pass by those of the cost curve
        self.rounds = 0
        self.drafted, self.last_ms = False, 0.0
        self.pass_ms: Callable[[int], float] | None = None  # None: no draft awaits its verdict

    @property
    def drafts_next(self) -> bool:
        """See :class:`.parts.block_context.OnePass`."""
        return self.drafted or not self.rounds

    def propose(self, context: Context) -> Draft:
        began = time.perf_counter()
        if self.continuations is not None:
            self.continuations.extend_to(context.ids)
        # 1) without a draft pass, then with one if it pays
        table = EMPTY_TABLE
        self.nodes, rate = self._grow(table, context)
        self.drafted = not self.params.adaptive or self._should_draft(context, self.nodes, rate)
        broken = ""
        if self.drafted:
            try:
                table = self.network.table(context, self.params.gamma, self.params.markov_head)
                self.nodes, _ = self._grow(
                    table, context, self._draft_cost() if table.rows else 0.0
                )
            except NotFinite as error:  # copies remain
                broken = str(error)
                context.remark(broken)
        # 2) what it cost
        self.pass_ms = context.pass_ms
        self.last_ms = (time.perf_counter() - began) * 1e3
        if self.drafted:
            self.last_ms += self.network.ahead_ms
        draft = self._draft(context)
        if context.record:
            self._annotate(draft, table)
        if broken:
            draft.notes["why"] = broken
        return draft

    def observe(self, verdict: Verdict) -> None:
        if self.pass_ms is None:
            return  # a plain round of the engine's own
        super().observe(verdict)
        # 1) costs
        pass_ms, plain_ms = self.pass_ms(len(self.nodes) + 1), self.pass_ms(1)
        self.slowdown.add(verdict.verify_seconds * 1e3 / pass_ms if verdict.verify_seconds else 1.0)
        self.rounds += 1
        if self.drafted and self.rounds > 1:  # the first draft pass reads the whole prompt
            self.draft_ms.add(self.last_ms)
            self.tree_rows.add(len(self.nodes) + 1)
        # 2) whether drafting pays
        self.policy.update(
            self.drafted,
            len(verdict.path) + 1,
            pass_ms + self._draft_cost() * self.drafted,
            plain_ms,
            expected_tokens(self.nodes),
        )
        self.pass_ms = None

    def _draft_cost(self) -> float:
        """Milliseconds of a draft on the scale of the cost curve: the machine may be slower now
        than when the curve was measured.
        """
        return self.draft_ms.value / (self.slowdown.value or 1.0)

    def _should_draft(self, context: Context, copies: list[Node], copies_rate: float) -> bool:
        """Whether a draft pass pays, given the tree of copies alone and its expected tokens per
        millisecond.
        """
        rows = min(round(self.tree_rows.value) or FIRST_ROWS, context.budget + 1)
        draft_ms = context.pass_ms(rows) + self._draft_cost()
        copies_ms = context.pass_ms(len(copies) + 1)
        return self.policy.should_draft(
            draft_ms, context.pass_ms(1), copies_rate * copies_ms, copies_ms
        )

    def _annotate(self, draft: Draft, table: CandidateTable) -> None:
        """The frames and notes of a recorded round."""
        expected = expected_tokens(self.nodes)
        draft.notes = {"expected": expected}
        if table.rows:
            draft.frames = frames(table)
            draft.notes |= {
                "boundaries": boundary_scores(table.chain_probs()),
                "branches": branch_depths(draft.parent),
            }
            return
        recent = f"recent rounds with a draft pass wrote {self.policy.expected:.2f} tokens"
        if draft.tokens:
            draft.notes["why"] = (
                f"no draft pass: {recent}; n-gram copies cost nothing and promise {expected:.2f}"
            )
        else:
            draft.notes["why"] = (
                f"drafting is paused while it does not pay: {recent}, less than they cost, and no"
                " n-gram of the text continues here"
            )
