"""How sure drafters are and how often they are right, as the bench counts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from device_rounds import device_engine
from fake_runners import PROMPTS, FakeRunners, plan

from specdemo.bench import make_report
from specdemo.bench.charts import charts
from specdemo.bench.measure import measure
from specdemo.bench.reliability import COUNT, add_round, reliability
from specdemo.bench.runners import collect
from specdemo.engine import race
from specdemo.events import DraftMade, Verify
from specdemo.request import Request

CHART = "How sure the drafter is, and how often it is right"


def test_only_what_the_target_chose_beside_counts():
    bins = []
    add_round(bins, DraftMade(q=[None, float("nan")]), Verify(status=["accepted", "rejected"]))
    assert bins == []
    draft = DraftMade(q=[0.9, 0.97, 0.31, 1.0, 0.99])
    add_round(
        bins, draft, Verify(status=["accepted", "rejected", "rejected", "dropped", "unreached"])
    )
    found = reliability([bins, bins, []])
    assert found == [
        [pytest.approx(0.31), 0.0, 2],
        [pytest.approx((0.9 + 0.97 + 1.0) / 3), pytest.approx(2 / 3), 6],
    ]


def test_a_drafter_that_knows_the_law_is_on_the_diagonal():
    rng, bins = np.random.default_rng(5), []
    sure = rng.random(40_000)
    status = np.where(rng.random(40_000) < sure, "accepted", "rejected")
    add_round(bins, DraftMade(q=sure.tolist()), Verify(status=status.tolist()))
    found = reliability([bins])
    assert len(found) == COUNT and sum(tokens for *_, tokens in found) == 40_000
    assert [right for _, right, _ in found] == pytest.approx([q for q, *_ in found], abs=0.03)


def test_a_race_brings_its_counts_into_the_report(tmp_path):
    engine = replace(device_engine(), rounds=None)
    request = Request("one two one two", "tree", max_new_tokens=24, lanes="spec", record=False)
    events = list(race(engine, request))
    run = collect(events)
    chosen = [s for e in events if isinstance(e, Verify) for s in e.status if s != "unreached"]
    assert len(chosen) == sum(tokens for tokens, *_ in run.confidence) > 0
    lines = measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path)
    assert CHART not in [title for title, _ in charts(make_report(lines))]
    for line in lines:
        if line["kind"] == "trial":
            line["runs"]["tree"]["confidence"] = run.confidence
    report = make_report(lines)
    ((_, figure),) = [chart for chart in charts(report) if chart[0] == CHART]
    drawn = report["table"]["tree"]["all"]["reliability"]
    assert list(figure.data[0].y) == [right for _, right, _ in drawn] and len(figure.data) == 2
