"""A lane: one answer being written on its own cache, with a clock that runs only while it computes.

The clock covers drafting, the target's pass, acceptance and moving the cache. Turning ids into
text, probabilities for display and everything a consumer does between two events are outside it,
for both lanes alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..drafters.parts.base import Context, Draft, Drafter, Verdict
from ..events import ArToken, DraftMade, Event, Prefill
from ..request import Request
from .accept import Accepted, accept
from .sampling import Noise, Rows
from .text import StopRule
from .verify_event import verify_event

if TYPE_CHECKING:
    from .engine import Engine


class Lane:
    """Writes one answer, a round at a time.

    Args:
        drafter: None for the plain lane, which reads ``width`` rows a step and keeps one.
        width: rows of a plain step (default: the engine's narrowest width that is bitwise equal to
            the verify widths); ``attention`` is its kind.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        prompt_ids: list[int],
        max_new_tokens: int,
        drafter: Drafter | None = None,
        width: int | None = None,
        attention: str = "layout_invariant",
    ):
        self.engine, self.request, self.drafter = engine, request, drafter
        self.name = "ar" if drafter is None else "spec"
        # all rules are the same rule where p is one-hot
        self.rule = "match" if request.sampling.greedy else request.rule
        self.width, self.attention = width or engine.costs.ar_width, attention
        self.ids, self.prompt_length, self.limit = list(prompt_ids), len(prompt_ids), max_new_tokens
        capacity = len(prompt_ids) + max_new_tokens + max(engine.costs.max_rows, self.width)
        self.cache = engine.target.new_cache(capacity)
        self.stop = StopRule(engine.tokenizer, engine.loaded.eos_ids, max_new_tokens, request.stop)
        self.noise = Noise(request.sampling.seed, engine.target.vocab_size, engine.target.device)
        # acceptance coins: never the noise the picks use
        self.accept_rng = torch.Generator().manual_seed(request.sampling.seed ^ 0x5EED)
        self.draft_rng = torch.Generator().manual_seed(request.sampling.seed ^ 0xD2AF7)
        self.taps = tuple(drafter.layer_ids) if drafter else ()
        self.features: list[torch.Tensor] = []
        self.features_from = 0
        self.capacity = capacity
        self.clock = self.ttft = self.draft_seconds = self.verify_seconds = 0.0
        self.rounds = self.accepted = self.drafting_rounds = 0
        # what the rounds should have cost by the curve measured at load
        self.predicted_seconds = 0.0
        self.gaps: list[float] = []
        self.logits: list[torch.Tensor] = []
        self.finish: str | None = None

    @property
    def output(self) -> list[int]:
        return self.ids[self.prompt_length :]

    @torch.inference_mode()
    def prefill(self) -> Prefill:
        """Read the prompt and choose the first token."""
        began = self.engine.now()
        logits, features = self.engine.target.prefill(self.cache, self.ids, self.taps)
        rows = Rows(logits, self.ids, Draft(), self.request.sampling, self.noise)
        token = rows.pick(0)
        if self.drafter:
            self.drafter.start(list(self.ids), self.capacity)
        self.ttft = self.engine.now() - began
        if features is not None:
            self.features.append(features)
        text = self._keep(rows, [(0, token)])[0][1]
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
        """One round: a plain step, or draft, verify, keep."""
        return [self._plain()] if self.drafter is None else self._round()

    def _plain(self) -> ArToken:
        began = self.engine.now()
        logits, _ = self.engine.target.verify(
            self.cache, self.ids[-1], [], [], self.width, attention=self.attention
        )
        rows = Rows(logits, self.ids, Draft(), self.request.sampling, self.noise)
        token = rows.pick(0)
        self.cache.commit([])
        self.clock += self.engine.now() - began
        self.rounds += 1
        text = self._keep(rows, [(0, token)])[0][1]
        return ArToken(
            len(self.output) - 1,
            token,
            text,
            self._logprob(rows, 0, token),
            self.clock,
            self.engine.vocab([token]),
        )

    def _round(self) -> list[Event]:
        began = self.engine.now()
        draft = self._propose()
        drafted = self.engine.now()
        n = len(draft.tokens)
        width = self.engine.costs.width_for(n + 1)
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
            self.features.append(features[[0, *(node + 1 for node in accepted.path)]])
        verified = self.engine.now()
        picks: list[int | None] = [None] * (n + 1)
        for row, token in zip(
            [0, *(node + 1 for node in accepted.path)],
            [*(draft.tokens[node] for node in accepted.path), accepted.token],
            strict=True,
        ):
            picks[row] = token
        self.drafter.observe(
            Verdict(accepted.path, accepted.token, picks, drafted - began, verified - drafted)
        )
        ended = self.engine.now()
        self.clock += ended - began
        self.draft_seconds += drafted - began
        self.verify_seconds += verified - drafted
        self.predicted_seconds += (
            self.engine.costs.predicted_ms(n + 1, (drafted - began) * 1e3) / 1e3
        )
        return self._report(
            draft, rows, accepted, width, (drafted - began, verified - drafted, ended - verified)
        )

    def _propose(self) -> Draft:
        if self.limit - len(self.output) <= 1:
            return Draft()  # one token to go: the target writes it itself
        return self.drafter.propose(
            Context(
                ids=self.ids,
                take_features=self._take_features,
                budget=self.engine.costs.max_rows - 1,
                record=self.request.record,
                rule=self.rule,
                temperature=self.request.sampling.temperature,
                generator=self.draft_rng,
                pass_ms=self.engine.costs.pass_ms,
                prompt_length=self.prompt_length,
            )
        )

    def _take_features(self) -> tuple[torch.Tensor, int]:
        start = self.features_from
        rows = (
            torch.cat(self.features)
            if self.features
            else torch.empty(0, len(self.taps) * self.engine.target.config.hidden_size)
        )
        self.features, self.features_from = [], start + len(rows)
        return rows, start

    def _report(
        self,
        draft: Draft,
        rows: Rows,
        accepted: Accepted,
        width: int,
        seconds: tuple[float, float, float],
    ) -> list[Event]:
        path_rows = [0, *(node + 1 for node in accepted.path)]
        tokens = [*(draft.tokens[node] for node in accepted.path), accepted.token]
        kept = self._keep(rows, list(zip(path_rows, tokens, strict=True)))
        round_number, n = self.rounds, len(draft.tokens)
        self.rounds += 1
        self.drafting_rounds += n > 0
        self.accepted += min(len(kept), len(accepted.path))
        # self-selection: the target's scores decided, so they are the ones to see
        if accepted.chosen is not None and "drafts" in draft.notes:
            draft.notes["chosen"] = accepted.chosen
            for one, streak in zip(draft.notes["drafts"], accepted.streaks, strict=True):
                one["own"], one["score"] = one.get("score"), streak
        events: list[Event] = []
        if self.request.record:
            for frame in draft.frames:
                frame.round = round_number
                frame.vocab = self.engine.vocab(
                    [*frame.ids, *(int(i) for top in frame.top for i, _ in top)]
                )
            events += draft.frames
        note_ids = _ids_in(draft.notes) if self.request.record else []
        events.append(
            DraftMade(
                round_number,
                draft.tokens,
                draft.parent,
                draft.probs,
                draft.origin,
                draft.notes,
                seconds[0],
                self.engine.vocab([*draft.tokens, *note_ids]),
            )
        )
        event = verify_event(draft, rows, accepted, kept, self.request.record)
        event.round, event.rows, event.cut = round_number, width, len(tokens) - len(kept)
        event.draft_seconds, event.verify_seconds, event.rest_seconds = seconds
        event.clock, event.vocab = (
            self.clock,
            self.engine.vocab(
                [k["id"] for k in event.kept] + [t for t in event.picks if t is not None]
            ),
        )
        return [*events, event]

    def _keep(self, rows: Rows, new: list[tuple[int, int]]) -> list[tuple[int, str]]:
        """Append (row, token) pairs until the stop rule ends the answer; the kept tokens with the
        text each released.
        """
        kept = []
        for row, token in new:
            text, self.finish = self.stop.push(token)
            self.ids.append(token)
            kept.append((token, text))
            self.gaps.append(rows.top2_gap(row))
            if self.request.check:
                self.logits.append(rows.logits[row].clone())
            if self.finish:
                break
        return kept

    def _logprob(self, rows: Rows, row: int, token: int) -> float | None:
        """The model's own log-probability of the token, untouched by temperature and filters."""
        return (
            float(rows.logits[row].float().log_softmax(-1)[token]) if self.request.record else None
        )

    def totals(self) -> dict[str, Any]:
        """Decode figures of this lane; the first token belongs to the prefill and is not in the
        rate.
        """
        decoded = len(self.output) - 1
        return {
            "tokens": len(self.output),
            "seconds": self.clock,
            "tokens_per_second": decoded / self.clock if self.clock and decoded else 0.0,
            "ttft_seconds": self.ttft,
        }


def _ids_in(notes: dict[str, Any]) -> list[int]:
    """Token ids that a method's notes mention, for the vocabulary table."""
    ids = [int(i) for column in notes.get("lattice", ()) for i, *_ in column]
    for key in ("paths", "drafts"):
        ids += [int(i) for item in notes.get(key, ()) for i in item.get("ids", ())]
    return ids
