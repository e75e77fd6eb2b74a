"""The race on a tiny random Llama: order of events, totals, stopping, and the exactness check."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import PROMPT, Proposes, Script, engine_for, oracle, tiny_engine, write
from tiny_models import make_tiny_target

from specdemo.engine import race
from specdemo.engine.calibrate import equal_widths
from specdemo.engine.exactness import check_exact, first_difference
from specdemo.engine.lane import Lane
from specdemo.engine.race import _borrows
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.events import ArToken, Done, DraftMade, Prefill, Start, Verify
from specdemo.request import Request
from specdemo.traces import dump_trace, parse_trace

torch.set_num_threads(1)


def test_the_exact_check_notices_a_changed_bit():
    """Bit for bit against the fixed width; a lane whose cache was tampered with fails."""
    engine = tiny_engine()
    truth = write(engine, max_new=24).output
    request = Request("x", "ar", max_new_tokens=24, check="exact")
    lane = Lane(engine, request, PROMPT, 24, Proposes(oracle(truth, 5, 4)))
    engine.costs = replace(engine.costs, widths=equal_widths(engine.target))
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            lane.advance()
        report = check_exact(engine, request, lane, 24)
        assert lane.output == truth and report["positions"] == 24
        assert report["max_difference"] < 1e-3
        lane.logits[3][5] += 1e-3
        assert not check_exact(engine, request, lane, 24)["identical"]


def test_a_drafter_borrows_where_any_network_of_it_does():
    own, other = SimpleNamespace(borrowed=False), SimpleNamespace(borrowed=True)
    assert _borrows(SimpleNamespace(network=own, warmup=other))
    assert _borrows(SimpleNamespace(borrowed=True, net=own))
    assert not _borrows(SimpleNamespace(network=own, params=3))


class TestRace:
    def run(self, engine=None, **more):
        return list(
            race(
                engine or tiny_engine(),
                Request(
                    **({"prompt": "abcabcabc", "method": "lookup", "max_new_tokens": 20} | more)
                ),
            )
        )

    def test_order_and_totals(self):
        events = self.run()
        assert (
            isinstance(events[0], Start)
            and isinstance(events[-1], Done)
            and sum(isinstance(e, Prefill) for e in events) == 2
        )
        result = events[-1].result
        spec = [e for e in events if isinstance(e, Verify)]
        written = [
            next(e.id for e in events if isinstance(e, Prefill) and e.lane == "spec"),
            *(k["id"] for e in spec for k in e.kept),
        ]
        assert (
            written == result["output_ids"]
            and result["identical"]
            and result["first_difference"] is None
        )
        assert result["spec"]["rounds"] == len(spec) and result["spec"][
            "tokens_per_round"
        ] == pytest.approx((len(written) - 1) / len(spec))
        assert (
            result["ar"]["tokens"]
            == len(written)
            == 1 + sum(isinstance(e, ArToken) for e in events)
        )
        assert result["ar"]["seconds"] == max(e.clock for e in events if isinstance(e, ArToken))
        known = {i for e in events for i in getattr(e, "vocab", {})}
        assert {str(i) for i in written} <= known
        assert [e.to_dict() for e in parse_trace(dump_trace(events))] == [
            e.to_dict() for e in events
        ]

    def test_the_lane_behind_moves_next(self):
        """Replaying the clocks: at every step the lane that moved had the smaller clock."""
        clocks, done = {"ar": 0.0, "spec": 0.0}, set()
        events = [e for e in self.run(max_new_tokens=40) if isinstance(e, (ArToken, Verify))]
        last = {
            "ar": max(i for i, e in enumerate(events) if isinstance(e, ArToken)),
            "spec": max(i for i, e in enumerate(events) if isinstance(e, Verify)),
        }
        for index, event in enumerate(events):
            lane = "ar" if isinstance(event, ArToken) else "spec"
            other = "spec" if lane == "ar" else "ar"
            assert other in done or clocks[lane] <= clocks[other]
            clocks[lane] = event.clock
            done |= {name for name, at in last.items() if at <= index}

    def test_cancel_and_close_leave_the_engine_free(self):
        """C56: Stop in mid-round, or the visitor gone; the next race is a fresh one."""
        engine = tiny_engine()
        before = self.run(engine)[-1].result["output_ids"]
        cancel, seen = threading.Event(), []
        for event in race(engine, Request("abcabcabc", "lookup", max_new_tokens=400), cancel):
            seen.append(event)
            if len(seen) == 8:
                cancel.set()
        assert (
            seen[-1].stopped
            and seen[-1].result["finish_reason"] == "stopped"
            and seen[-1].result["identical"]
            and len(seen) < 30
        )
        abandoned = race(engine, Request("abcabcabc", "lookup"))
        next(abandoned), next(abandoned)
        abandoned.close()
        assert not engine.lock.locked() and self.run(engine)[-1].result["output_ids"] == before

    @pytest.mark.parametrize("halted", [0.0, 79.0])
    def test_a_program_halted_in_the_middle_of_a_round_says_so(self, halted):
        """SIGSTOP, a frozen container: the clock went on while nothing computed."""
        engine, calls = tiny_engine(), itertools.count()
        engine.now = lambda: time.perf_counter() + (halted if next(calls) > 40 else 0)
        result = self.run(engine)[-1].result
        assert next(calls) > 50  # the jump was inside
        said = f"{halted:.1f} seconds in which this program did not run"
        assert (said in (result["note"] or "")) == bool(halted)
        assert sum(result[lane]["seconds"] for lane in ("ar", "spec")) >= halted

    def test_two_at_once_take_turns(self):
        engine, out = tiny_engine(), []
        threads = [
            threading.Thread(target=lambda: out.append(self.run(engine)[-1].result["output_ids"]))
            for _ in range(3)
        ]
        [t.start() for t in threads]
        [t.join(60) for t in threads]
        assert len(out) == 3 and out[0] == out[1] == out[2]

    def test_context_that_is_full(self):
        """C38: fewer tokens than asked for, and it says so; a prompt that does not fit is
        refused.
        """
        engine = tiny_engine(max_position_embeddings=100)
        done = self.run(engine, max_new_tokens=98)[-1].result
        assert len(done["output_ids"]) == 100 - 9 and "91" in done["note"]
        with pytest.raises(UserError, match="at most 100 .*shorten"):
            self.run(engine, prompt="a" * 100)

    @pytest.mark.parametrize("length", [448, 500, 510, 511])
    def test_exact_up_to_the_last_position(self, length):
        """Behind a nearly full context the widest passes reach past the target's last position; as
        many tokens as transformers writes, and the very same.
        """
        model = make_tiny_target()
        target = Target(model)
        with torch.inference_mode():
            engine = engine_for(target, widths=equal_widths(target))
        prompt = "".join("abcdefgh"[i * i % 7] for i in range(length))
        ids = torch.tensor([engine.encode(prompt)])
        text = model.generate(ids, max_length=512, do_sample=False)[0, length:].tolist()
        assert len(text) == 512 - length
        result = self.run(engine, prompt=prompt, max_new_tokens=64, check="exact")[-1].result
        assert result["output_ids"] == text and result["identical"] and result["exact"]["identical"]
        wide = [t if i % 3 else 0 for i, t in enumerate(text)] + [
            5
        ] * 40  # deeper than what is left
        for drafts in (text + [7] * 40, wide):
            lane = Lane(
                engine,
                Request("x", "ar"),
                ids[0].tolist(),
                len(text),
                Proposes(oracle(drafts, length, 30)),
            )
            lane.prefill()
            while not lane.finish:
                lane.advance()
            assert lane.output == text

    def test_stop_is_looked_at_before_each_prefill(self):
        """A race stopped before its start reads nothing, and one stopped after the first prefill
        does not begin the second; neither has a figure that is no number.
        """
        for prefills in (0, 1):
            cancel, events = threading.Event(), []
            for event in race(tiny_engine(), Request("abcabcabc", "lookup"), cancel):
                events.append(event)
                if sum(isinstance(e, Prefill) for e in events) == prefills:
                    cancel.set()
            assert [type(e) for e in events] == [Start, *[Prefill] * prefills, Done]
            done = events[-1]
            assert done.stopped and done.result["finish_reason"] == "stopped"
            assert done.result["spec"]["tokens_per_round"] == 0 and not done.result["speedup"]
            assert parse_trace(dump_trace(events))

    def test_difference_is_named_with_its_gap(self):
        """C24: a lane that parts from the other is reported with the position and how near a tie it
        was.
        """
        engine = engine_for(Script(lambda prefix: torch.tensor([1.0, 0.75] + [0.0] * 30)))
        request = Request("x", "ar", max_new_tokens=6)
        one, other = (Lane(engine, request, PROMPT, 6) for _ in range(2))
        for lane in (one, other):
            lane.prefill()
            while not lane.finish:
                lane.advance()
        one.ids[len(PROMPT) + 3] = 1
        assert first_difference(one, other) == {"position": 3, "top2_gap": 0.25}

    def test_record_changes_nothing_that_is_written(self):
        assert (
            self.run(record=True)[-1].result["output_ids"]
            == self.run(record=False)[-1].result["output_ids"]
        )

    def test_one_formula_predicts_rounds_and_race(self):
        """A round's prediction holds the drafting time really spent, also when nothing was drafted;
        the race's is their sum against the baseline.
        """
        events = self.run(max_new_tokens=40)
        start, done = events[0], events[-1]
        drafts = [e for e in events if isinstance(e, DraftMade)]
        rounds = [e for e in events if isinstance(e, Verify)]
        cost = {int(rows): ms for rows, ms in start.cost_ms.items()}
        assert start.baseline_ms == min(cost[start.ar_width], start.one_row_ms)
        assert any(not e.tokens for e in drafts) and any(e.tokens for e in drafts)
        for draft, verdict in zip(drafts, rounds, strict=True):
            pass_ms = verdict.predicted_ms - verdict.draft_seconds * 1e3
            assert pass_ms == pytest.approx(min(cost[w] for w in cost if w >= verdict.rows))
            assert verdict.draft_seconds == draft.seconds > 0
        assert done.result["predicted_speedup"] == pytest.approx(
            sum(len(e.kept) for e in rounds)
            * start.baseline_ms
            / sum(e.predicted_ms for e in rounds)
        )
