"""Intervals, differences between methods, acceptance by position, loops and copies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_runners import PROMPTS, FakeRunners, plan

from specdemo.bench import make_report
from specdemo.bench.charts import charts
from specdemo.bench.figures import accepted_at, paired, rows_of
from specdemo.bench.html import fragment
from specdemo.bench.intervals import Timed, interval, ratio
from specdemo.bench.measure import measure
from specdemo.repetition import echo, loop_start


def runs(speeds, base=10.0):
    return [Timed(str(i), 100, 100 / speed, 100, 100 / base) for i, speed in enumerate(speeds)]


def test_a_ratio_is_of_sums():
    assert ratio(runs([20, 5])) == pytest.approx(200 / (5 + 20) / 10)
    assert ratio([]) is None and interval(runs([20.0])) is None


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Prompts of a known law: 95 of 100 samples of 60 prompts cover their true ratio of sums."""
    rng = np.random.default_rng(3)
    law = rng.lognormal(0.4, 0.5, 200_000)
    truth = 1 / np.mean(1 / law)
    covered = 0
    for _ in range(200):
        low, high = interval(runs(10 * rng.choice(law, 60)))
        covered += low <= truth <= high
    assert 180 <= covered <= 199


def test_repeats_of_a_prompt_do_not_narrow_an_interval():
    once = runs([20, 5, 12, 9])
    assert interval(once) == pytest.approx(interval(once * 5))


def trials(tmp_path):
    lines = measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path)
    return lines, [line for line in lines if line["kind"] == "trial"]


def test_methods_are_compared_within_their_trials(tmp_path):
    lines, done = trials(tmp_path)
    block, tree = rows_of(done, "block"), rows_of(done, "tree")
    middle, low, high = paired(tree, block)
    assert middle == pytest.approx(3.0)  # 120 tokens in 4 s against 12 s
    assert low == pytest.approx(2.0) and high == pytest.approx(4.0)
    report = make_report(lines)
    assert report["paired"]["tree"]["block"] == [middle, low, high]
    assert report["paired"]["block"]["tree"][0] == pytest.approx(1 / middle)
    assert "3.00<br><small>2.00 – 4.00" in fragment(report)
    assert report["table"]["tree"]["all"]["interval"] == pytest.approx([1.0, 2.0])


def test_charts_write_categories_as_words(tmp_path):
    lines, _ = trials(tmp_path)
    report = make_report(json.loads(json.dumps(lines).replace('"easy"', '"word_problems"')))
    assert "word_problems" in report["categories"]
    drawn = dict(charts(report))["Speed-up over plain decoding, by category"].to_json()
    assert "word problems" in drawn and "word_problems" not in drawn


def test_acceptance_by_position_counts_rounds(tmp_path):
    lines, done = trials(tmp_path)
    rows = rows_of(done, "tree")
    assert accepted_at(rows) == [1.0, 1.0, 1.0]
    rows[0].run["accepted"][:] = [0, 1, 2, 5, 3]
    # of 30 rounds in six runs
    assert accepted_at(rows) == pytest.approx([29 / 30, 28 / 30, 27 / 30, 1 / 30, 1 / 30])
    titles = [title for title, _ in charts(make_report(lines))]
    assert "How many drafted tokens a round accepts" in titles


def test_loops_are_found_where_they_begin():
    prose = list(range(50))
    assert loop_start(prose) is None and loop_start([]) is None
    assert loop_start([*prose, *[1, 2, 3] * 8]) == 50
    assert loop_start([*prose, *[7] * 16]) == 50
    assert loop_start([*prose, *[7] * 12]) is None, "a word said often is no loop"
    assert loop_start([*prose, *range(100, 120), *range(100, 120)]) is None, "twice is none"
    assert loop_start([*[1, 2] * 20, *prose]) is None, "it must reach the end"
    assert loop_start([*prose, *[1, 2, 3] * 8, 1, 2]) == 50, "the last time may be cut off"


def test_copies_of_the_prompt_are_found():
    source = "The river rises in the hills and reaches the sea behind the old harbour wall"
    assert echo(source.upper(), source) == 1.0 and echo("The river", source) == 0.0
    assert 0.1 < echo(source + " where boats lie in the evening sun all summer long", source) < 0.7
    assert echo("It begins inland, then flows past a town and out to open water.", source) == 0.0


def test_a_report_names_loops_and_copies(tmp_path):
    lines, done = trials(tmp_path)
    for trial in done:
        trial["echo"] = 0.9 if trial["prompt"] == "h1" else 0.0
    report = make_report(lines)
    assert report["baseline"]["loops"] == pytest.approx(1 / 3) == report["baseline"]["echoes"]
    assert report["baseline"]["loop_at"] == 0
    assert any("end in a loop (from token 0 on" in text for text in report["remarks"])
    assert any("mostly copied from their prompt" in text for text in report["remarks"])
    unflagged = report["table"]["tree"]["all"]["unflagged"]
    assert unflagged["speedup"] == pytest.approx(2.0), "without the slow one and the loop"
    assert report["table"]["tree"]["all"]["speedup"] == pytest.approx(1.5)
