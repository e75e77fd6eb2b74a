"""A lane whose rounds run on the device from one upload to one download."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...drafters.parts.base import Draft, Drafter
from ...drafters.parts.block_context import OnePass
from ...errors import UserError
from ...events import LaneName
from ...models.block_drafter import BlockDrafter
from ...models.decoder import KVCache
from ...request import Request
from ..accept import Accepted
from ..lane import Lane
from ..sampling import NOT_NUMBERS
from .choose import Processing
from .draft import DeviceDraft, DraftSteps
from .rounds import DeviceRounds, LaneGraphs, Marks
from .state import Outcome

if TYPE_CHECKING:
    from ..engine import Engine


class OutcomeRows:
    """The rows of a round as events need them: of those on the accepted path, what was
    downloaded.
    """

    def __init__(self, outcome: Outcome, draft: Draft, logits: torch.Tensor):
        self.logits = logits
        self._gaps = dict(zip(outcome.rows, outcome.gaps, strict=True))
        self._logprobs = {
            (above + 1, token): outcome.node_logprobs[node + 1]
            for node, (token, above) in enumerate(zip(draft.tokens, draft.parent, strict=True))
        }
        own = zip(outcome.rows, outcome.tokens, outcome.logprobs, strict=True)
        self._logprobs |= {(row, token): logprob for row, token, logprob in own}

    def top2_gap(self, row: int) -> float:
        """See :meth:`..sampling.Rows.top2_gap`."""
        return self._gaps[row]

    def rule_prob(self, row: int, token: int) -> float | None:
        """None: the processed distribution stays on the device."""
        return None

    def best(self, row: int, n: int) -> list[tuple[int, float]]:
        """None: they would be one more download a round."""
        return []

    def logprob(self, row: int, token: int) -> float:
        """See :meth:`..sampling.Rows.logprob`."""
        return self._logprobs[row, token]


class DeviceLane(Lane):
    """:class:`..lane.Lane` on an engine with ``rounds``. Both lanes run the same graph, the plain
    one with an empty draft. The prompt is read, and drafters with more than one pass run, as
    there.
    """

    graphs: LaneGraphs
    one_pass: OnePass | None = None
    device_draft: DeviceDraft | None = None

    def _new_cache(self) -> KVCache:
        rounds, draft = self._rounds(), None
        if isinstance(self.drafter, OnePass) and _captured(self.drafter.network.net):
            self.one_pass, params = self.drafter, self.drafter.params
            budget = self.most_rows - 1
            draft = DraftSteps(self.drafter.network, params.gamma, budget, params.markov_head)
        self.graphs = rounds.lane(self.name, self.capacity, self.taps, draft)
        self.verify = self.graphs.verify(Processing.of(self.request.sampling))
        self.marks = Marks(self.engine.target.device, 4)
        self.graphs.state.cache.length = 0
        return self.graphs.state.cache

    def _rounds(self) -> DeviceRounds:
        assert self.engine.rounds is not None
        return self.engine.rounds

    def _begin(self, token: int) -> None:
        self.graphs.state.begin([*self.ids, token], self.request.sampling)
        if self.one_pass is not None and self.graphs.draft is not None:
            self.device_draft = DeviceDraft(self.graphs.draft, self._fill_now)
            self.one_pass.network.device_pass = self.device_draft

    def _pass(self, draft: Draft, width: int) -> tuple[OutcomeRows, Accepted]:
        state = self.graphs.state
        # 1) Everything is queued, and waited for once.
        state.upload(draft.tokens, draft.parent)
        self.verify()
        self.marks.mark(0)
        ahead = self._draft_next()
        self.marks.mark(1)
        state.download()
        self.marks.mark(2)
        self.marks.wait()
        # 2) What came of it.
        outcome = state.outcome()
        if not all(math.isfinite(score) for score in outcome.scores):
            raise UserError(NOT_NUMBERS)
        self.cache.length += outcome.accepted + 1
        if self.device_draft is not None:
            self.ahead_seconds = self.marks.seconds(0, 1)
            self.device_draft.forget()
            if ahead:
                self.device_draft.has_run(state.table(), self.ahead_seconds * 1e3)
        elif self.taps:
            self.features.append(state.features[: outcome.accepted + 1].clone())
        path = [row - 1 for row in outcome.rows[1:]]
        rows = OutcomeRows(outcome, draft, state.logits)
        return rows, Accepted(path, outcome.tokens)

    def _draft_next(self) -> bool:
        """Queue the drafter's context and, where the next round probably takes it, its pass.

        Returns:
            Whether the pass was queued.
        """
        if self.device_draft is None or self.one_pass is None:
            return False
        assert self.graphs.extend is not None and self.graphs.fill is not None
        self.graphs.extend()
        if not (self.device_draft.ready and self.one_pass.drafts_next):
            return False
        self.graphs.fill()
        return True

    def _fill_now(self) -> torch.Tensor:
        assert self.graphs.fill is not None
        self.graphs.fill()
        self.graphs.state.download()
        self.marks.mark(3)
        self.marks.wait()
        return self.graphs.state.table()


def make_lane(
    engine: Engine,
    request: Request,
    prompt_ids: list[int],
    max_new_tokens: int,
    drafter: Drafter | None = None,
    name: LaneName | None = None,
) -> Lane:
    """A lane of the kind that the engine has."""
    kind = Lane if engine.rounds is None else DeviceLane
    return kind(engine, request, prompt_ids, max_new_tokens, drafter, name=name)


def for_request(engine: Engine, request: Request) -> tuple[Engine, str]:
    """The engine as a request uses it: with its rounds on the device and their costs, or without
    and with a sentence that says why ("" where there is no GPU to run them on).
    """
    if engine.rounds is None:
        return engine, engine.why_no_rounds
    if why := engine.rounds.refuses(request):
        return replace(engine, rounds=None), why
    return replace(engine, costs=engine.rounds.costs, pace=None), ""


def _captured(net: object) -> bool:
    """Whether rounds with this drafter are captured; one that reads tokens itself drafts as on a
    CPU.
    """
    return isinstance(net, BlockDrafter) and not net.reads_text
