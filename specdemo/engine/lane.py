"""A lane: one answer being written on its own cache, with a clock that runs only while it computes.

The clock covers drafting, the target's pass, acceptance and moving the cache. Turning ids into
text, probabilities for display and everything a consumer does between two events are outside it,
for both lanes alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..drafters.parts.base import Context, Draft, Drafter, NotFinite, Verdict
from ..events import (
    ArToken,
    Denoise,
    DraftMade,
    DraftNotes,
    Event,
    LaneName,
    Prefill,
    Verify,
)
from ..request import Request
from ..totals import FinishReason, LaneTotals, Rule
from .accept import Accepted, accept
from .attention import AttentionKind
from .noise import Noise
from .prompt import ReadPrompt
from .sampling import Coupling, Rows
from .selection import with_selection
from .text import StopRule
from .verify_event import DecidedRows, Round, RoundSeconds, verify_event

if TYPE_CHECKING:
    from ..models.decoder import KVCache
    from .cost import CostModel
    from .engine import Engine


class Stopwatch:
    """Splits the time since it was made into laps, each read after the device is done."""

    def __init__(self, now: Callable[[], float]):
        self._now, self._last = now, now()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, self._now()
        return self._last - before


class Lane:
    """Writes one answer, a round at a time.

    Args:
        drafter: None for the plain lane, which reads ``width`` rows a step and keeps one.
        width: rows of a plain step (default: the engine's narrowest width that is bitwise equal to
            the verify widths); ``attention`` is its kind.
        name: default: ``ar`` or ``spec``.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        prompt_ids: list[int],
        max_new_tokens: int,
        drafter: Drafter | None = None,
        width: int | None = None,
        attention: AttentionKind = "layout_invariant",
        name: LaneName | None = None,
    ):
        self.engine, self.request, self.drafter = engine, request, drafter
        self.name: LaneName = name or ("ar" if drafter is None else "spec")
        # all rules are the same rule where p is one-hot; plain decoding is the target's own choice
        plain = drafter is None or request.sampling.greedy
        self.rule: Rule = "match" if plain else request.rule
        self.width, self.attention = width or engine.costs.ar_width, attention
        self.ids, self.prompt_length, self.limit = list(prompt_ids), len(prompt_ids), max_new_tokens
        self.most_rows = engine.costs.rows_for(request.params.most_nodes())
        self.capacity = len(prompt_ids) + max_new_tokens + max(engine.costs.max_rows, self.width)
        self.taps = tuple(drafter.layer_ids) if drafter else ()
        self.cache = self._new_cache()
        self.stop = StopRule(engine.tokenizer, engine.loaded.eos_ids, max_new_tokens, request.stop)
        self.noise = Noise(request.sampling.seed, engine.target.vocab_size, engine.target.device)
        coupled = getattr(getattr(drafter, "params", None), "coupled", False)
        coupled = coupled and self.rule == "match" and not request.sampling.greedy
        self.coupling = Coupling(request.sampling.temperature, self.noise) if coupled else None
        # three independent streams: the target's noise, acceptance, the drafter
        self.accept_rng = torch.Generator().manual_seed(request.sampling.seed ^ 0x5EED)
        self.draft_rng = torch.Generator().manual_seed(request.sampling.seed ^ 0xD2AF7)
        self.features: list[torch.Tensor] = []  # of tokens the drafter has not taken yet
        self.features_from = 0  # the absolute position of the first of them
        # of the device, spent in the last pass on the draft of the next round
        self.ahead_seconds = 0.0
        self.clock = self.ttft = self.draft_seconds = self.verify_seconds = 0.0
        self.predicted_ms = self.baseline_ms = 0.0
        self.middle = self.prompt_length + max_new_tokens // 2  # of the longest answer
        # of the last round: threads, where they were fewer than there are; the baseline's costs
        self.threads: int | None = None
        self.baseline_now = self.baseline_first = engine.costs.at(self.middle).baseline_ms
        self.rounds = self.accepted = self.drafting_rounds = self.cut_rounds = 0
        self.gaps: list[float] = []
        self.logits: list[torch.Tensor] = []
        self.remarks: dict[str, None] = {}  # sentences about the drafter, each once, in order
        self.finish: FinishReason | None = None

    @property
    def output(self) -> list[int]:
        return self.ids[self.prompt_length :]

    def _new_cache(self) -> KVCache:
        return self.engine.target.new_cache(self.capacity)

    def _begin(self, token: int) -> None:
        """Called once the prompt is read, with the first token."""

    @torch.inference_mode()
    def prefill(self, prompt: ReadPrompt | None = None) -> Prefill:
        """Choose the first token, from a ``prompt`` that was read with this lane's taps, perhaps
        for another lane (its keys and values are copied, off the clock); without one, read it.
        """
        if prompt is None:
            prompt = ReadPrompt(self.engine, self.ids, self.cache, self.taps)
            prompt.read()
        elif prompt.cache is not self.cache:
            self.cache.copy_from(prompt.cache)
        timer = Stopwatch(self.engine.now)
        rows = Rows(prompt.logits, self.ids, Draft(), self.request.sampling, self.noise)
        token = rows.pick(0)
        if self.drafter:
            self.drafter.start(list(self.ids), self.capacity)
            self.features += prompt.features
        self._begin(token)
        self.ttft = prompt.seconds + timer.lap()
        ((_, text),) = self._keep(rows, [0], [token])
        return Prefill(
            self.name,
            token,
            text,
            self._logprob(rows, 0, token),
            self.ttft,
            self.engine.vocab([token]),
        )

    @torch.inference_mode()
    def advance(self) -> list[Event]:
        """One round: a plain step, or draft, verify, accept."""
        return [self._plain()] if self.drafter is None else self._round(self.drafter)

    def _plain(self) -> ArToken:
        costs = self._costs()
        timer = Stopwatch(self.engine.now)
        rows, accepted = self._pass(Draft(), self.width)
        seconds = timer.lap()
        self._note_pass(costs, self.width, seconds)
        self.clock += seconds
        self.rounds += 1
        token = accepted.token
        ((_, text),) = self._keep(rows, [0], [token])
        return ArToken(
            len(self.output) - 1,
            token,
            text,
            self._logprob(rows, 0, token),
            self.clock,
            self.engine.vocab([token]),
            self.threads,
        )

    def _round(self, drafter: Drafter) -> list[Event]:
        costs = self._costs()
        timer = Stopwatch(self.engine.now)
        # 1) Draft a tree of candidates behind the anchor.
        draft = self._propose(drafter, costs)
        draft_seconds = timer.lap() + self.ahead_seconds
        # 2) One pass of the target over the anchor and all candidates; keep the accepted path and
        #    the target's own token behind it.
        live = len(draft.tokens) + 1
        width = costs.width_for(live)
        rows, accepted = self._pass(draft, width)
        verify_seconds = timer.lap() - self.ahead_seconds
        # 3) Tell the drafter.
        drafter.observe(Verdict(accepted.path, accepted.token, draft_seconds, verify_seconds))
        rest_seconds = timer.lap()
        # 4) Off the clock: text, figures and events.
        kept = self._keep(rows, accepted.rows, accepted.tokens)
        if self.finish:  # nobody takes the draft that is ready
            rest_seconds += self.ahead_seconds
        seconds = RoundSeconds(draft_seconds, verify_seconds, rest_seconds)
        predicted_ms = costs.predicted_ms(live, draft_seconds * 1e3)
        if not draft.cascade:
            self._note_pass(costs, width, verify_seconds)
        self.clock += seconds.total
        self.draft_seconds += seconds.draft
        self.verify_seconds += seconds.verify
        self.predicted_ms += predicted_ms
        self.baseline_ms += self.baseline_now * len(kept)
        done = Round(
            self.rounds, draft, rows, accepted, kept, width, seconds, predicted_ms, self.clock
        )
        self.rounds += 1
        self.drafting_rounds += live > 1
        self.cut_rounds += draft.left_out > 0
        self.accepted += min(len(kept), len(accepted.path))
        verdict = verify_event(done, self.engine.vocab, self.request.record)
        verdict.threads = self.threads
        if self.baseline_now != self.baseline_first:
            verdict.baseline_ms = self.baseline_now
        events: list[Denoise | DraftMade | Verify] = [*self._draft_events(done), verdict]
        if self.name == "against":
            for event in events:
                event.lane = self.name
        return [*events]

    def _pass(self, draft: Draft, width: int) -> tuple[DecidedRows, Accepted]:
        """One pass of the target over the anchor and ``draft``, of which the accepted path is
        committed; the features of what was committed are kept for the drafter.
        """
        logits, features = self.engine.target.verify(
            self.cache,
            self.ids[-1],
            draft.tokens,
            draft.parent,
            width,
            self.taps,
            "cascade" if draft.cascade else self.attention,
        )
        rows = Rows(logits, self.ids, draft, self.request.sampling, self.noise)
        accepted = accept(draft, rows, self.rule, self.accept_rng)
        self.cache.commit(accepted.path)
        if features is not None:
            self.features.append(features[accepted.rows])
        return rows, accepted

    def _costs(self) -> CostModel:
        """What the next round's passes cost: with the threads that compute it, behind what is
        written.
        """
        pace = self.engine.pace
        if pace is None:
            return self.engine.costs.at(self.cache.length)
        pace.rest()
        self.threads = pace.threads if pace.threads < pace.most else None
        self.baseline_now = pace.costs.at(self.middle).baseline_ms
        return pace.costs.at(self.cache.length)

    def _note_pass(self, costs: CostModel, width: int, seconds: float) -> None:
        pace = self.engine.pace
        if pace is not None and self.attention == "layout_invariant" and width in costs.ms:
            pace.note(width, seconds * 1e3, costs.ms[width])

    def _propose(self, drafter: Drafter, costs: CostModel) -> Draft:
        if self.limit - len(self.output) <= 1:
            return Draft()  # one token to go: the target writes it itself
        sampling = self.request.sampling
        context = Context(
            ids=self.ids,
            take_features=self._take_features,
            budget=self.most_rows - 1,
            record=self.request.record,
            rule=self.rule,
            temperature=0.0 if sampling.greedy else sampling.temperature,
            couple=self.coupling,
            generator=self.draft_rng,
            pass_ms=costs.pass_ms,
            prompt_length=self.prompt_length,
            remark=self.remarks.setdefault,
        )
        try:
            return drafter.propose(context)
        except NotFinite as error:
            context.remark(str(error))
            return Draft(notes={"why": str(error)})

    def _take_features(self) -> tuple[torch.Tensor, int]:
        start = self.features_from
        rows = (
            torch.cat(self.features)
            if self.features
            else torch.empty(0, len(self.taps) * self.engine.target.config.hidden_size)
        )
        self.features, self.features_from = [], start + len(rows)
        return rows, start

    def _draft_events(self, done: Round) -> list[Denoise | DraftMade]:
        """The denoising steps of a round, if they are wanted, and its draft."""
        draft, record = done.draft, self.request.record
        frames = draft.frames if record else []
        for frame in frames:
            frame.round = done.number
            candidates = [int(i) for top in frame.top for i, _ in top]
            frame.vocab = self.engine.vocab([*frame.ids, *candidates])
        greedy = self.request.sampling.greedy
        notes = with_selection(draft.notes, done, greedy, record)
        if draft.left_out:
            notes = {**notes, "left_out": draft.left_out}
        note_ids = _ids_in(notes) if record else []
        made = DraftMade(
            done.number,
            draft.tokens,
            draft.parent,
            draft.probs,
            draft.origin,
            notes,
            done.seconds.draft,
            self.engine.vocab([*draft.tokens, *note_ids]),
        )
        return [*frames, made]

    def _keep(
        self, rows: DecidedRows, sources: list[int], tokens: list[int]
    ) -> list[tuple[int, str]]:
        """Append ``tokens``, chosen by the rows ``sources``, until the stop rule ends the answer.

        Returns:
            The tokens kept, each with the text it released.
        """
        kept = []
        for row, token in zip(sources, tokens, strict=True):
            text, self.finish = self.stop.push(token)
            self.ids.append(token)
            kept.append((token, text))
            self.gaps.append(rows.top2_gap(row))
            if self.request.check:
                self.logits.append(rows.logits[row].clone())
            if self.finish:
                break
        return kept

    def _logprob(self, rows: DecidedRows, row: int, token: int) -> float | None:
        """The model's own log-probability of the token, untouched by temperature and filters."""
        return rows.logprob(row, token) if self.request.record else None

    def totals(self) -> LaneTotals:
        """Decode figures of this lane."""
        decoded = len(self.output) - 1
        return {
            "tokens": len(self.output),
            "seconds": self.clock,
            "tokens_per_second": decoded / self.clock if self.clock and decoded else 0.0,
            "ttft_seconds": self.ttft,
        }


def _ids_in(notes: DraftNotes) -> list[int]:
    """Token ids that a method's notes mention, for the vocabulary table."""
    lattice = [int(i) for column in notes.get("lattice", ()) for i, *_ in column]
    paths = [int(i) for path in notes.get("paths", ()) for i in path["ids"]]
    drafts = [int(i) for draft in notes.get("drafts", ()) for i in draft["ids"]]
    return [*lattice, *paths, *drafts]
