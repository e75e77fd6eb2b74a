"""Measuring: interleaving, resuming after a kill, and figures by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from fake_runners import FACTS, PROMPTS, PROSE, FakeRunners, plan
from rich.console import Console

import specdemo.bench.cli as cli
from specdemo.bench import make_report
from specdemo.bench.figures import baseline_rate, speedup
from specdemo.bench.html import page
from specdemo.bench.measure import measure
from specdemo.bench.methods import BASELINE
from specdemo.bench.remarks import remarks
from specdemo.bench.runs_file import RUNS, resume
from specdemo.errors import UserError
from specdemo.prompts import Prompt
from specdemo.repetition import DEGENERATE, uniqueness


def trials(lines):
    return [(line["prompt"], line["repeat"]) for line in lines if line["kind"] == "trial"]


def test_every_trial_is_written_and_interleaved(tmp_path):
    fake = FakeRunners()
    progress = []
    lines = measure(fake.by_label(), PROMPTS, plan(), tmp_path, lambda *a: progress.append(a))
    assert trials(lines) == [(i.id, r) for r in range(2) for i in PROMPTS]
    assert [c[0] for c in fake.calls[:3]] == ["ar", "block", "fast"]  # warm-up
    assert [c[0] for c in fake.calls[3:11]] == [
        "ar",
        "block",
        "fast",
        "ar",
        "ar",
        "fast",
        "block",
        "ar",
    ]
    # second repeat, first prompt: reversed
    assert [c[0] for c in fake.calls[15:19]] == ["ar", "fast", "block", "ar"]
    assert {c[2] for c in fake.calls[3:15]} == {0} and {c[2] for c in fake.calls[15:]} == {1}
    assert [json.loads(x) for x in (tmp_path / RUNS).read_bytes().split(b"\n") if x] == json.loads(
        json.dumps(lines)
    )
    assert progress[-1][:2] == (6, 6) and progress[1][:2] == (0, 6)


@pytest.mark.parametrize("calls", [2, 3, 8, 13, 26])
def test_a_killed_run_goes_on_after_its_last_complete_trial(tmp_path, calls):
    with pytest.raises(KeyboardInterrupt):
        measure(FakeRunners(calls).by_label(), PROMPTS, plan(), tmp_path)
    with (tmp_path / RUNS).open("ab") as file:
        # what a kill in the middle of a write leaves
        file.write(b'{"kind":"trial","prompt":"e1","rep')
    before = trials(resume(tmp_path / RUNS, plan()))
    again = FakeRunners()
    lines = measure(again.by_label(), PROMPTS, plan(), tmp_path)
    assert trials(lines)[: len(before)] == before
    assert sorted(trials(lines)) == sorted((i.id, r) for r in range(2) for i in PROMPTS)
    assert len(again.calls) == 3 + 4 * (6 - len(before))
    assert make_report(lines)["complete"]
    untouched = FakeRunners()
    assert (
        trials(measure(untouched.by_label(), PROMPTS, plan(), tmp_path)) == trials(lines)
        and not untouched.calls
    )


def test_another_plan_or_another_machine_is_not_mixed_in(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(FakeRunners(8).by_label(), PROMPTS, plan(), tmp_path)
    with pytest.raises(UserError, match="different bench"):
        measure(FakeRunners().by_label(), PROMPTS, plan(max_new_tokens=5), tmp_path)
    other = FakeRunners().by_label()
    base = other[BASELINE]
    other[BASELINE] = lambda prompt, seed: replace(
        base(prompt, seed), facts={**FACTS, "dtype": "bfloat16"}
    )
    with pytest.raises(UserError, match="other hardware"):
        measure(other, PROMPTS, plan(), tmp_path)
    (tmp_path / RUNS).write_text("hello\n")
    with pytest.raises(UserError, match="not a bench result"):
        measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used"):
        measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path / "file")


def test_a_refused_prompt_is_left_out_and_named(tmp_path):
    lines = measure(
        FakeRunners().by_label(),
        (*PROMPTS, Prompt("long", "easy", "refuse me")),
        plan(prompts=4),
        tmp_path,
    )
    report = make_report(lines)
    assert report["complete"] and report["table"]["tree"]["all"]["prompts"] == 3
    assert report["refused"] == ["long: ar: The prompt is too long; shorten it."] * 2


# -- figures by hand -------------------------------------------------------------------------------


@pytest.fixture()
def report(tmp_path):
    return make_report(measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path))


@pytest.mark.parametrize(
    "low, high, busy",
    [(0.994, 1.009, False), (2.763, 8.12, True), (0.5, 1.02, True), (0.95, 1.3, True)],
)
def test_a_machine_too_busy_to_measure_on_is_named(report, low, high, busy):
    report["baseline"]["repeat_ratio"] = [low, 1.0, high]
    for row in report["table"].values():
        row["all"]["speedup"] = 0.7
    said = " ".join(remarks(report))
    assert ("too busy for any speed-up here to mean something" in said) == busy
    assert ("Slower than plain decoding" in said) != busy, "nothing is concluded from such times"


@pytest.mark.parametrize(
    "measured, predicted, said",
    [
        (1.5, 1.2, ""),
        (1.5, 1.1, "tree (1.50, predicted 1.10)"),
        (0.3, 0.6, "tree (0.30, predicted 0.60)"),
        (None, 1.0, ""),
        (1.0, None, ""),
    ],
)
def test_figures_far_from_their_prediction_are_called_unreliable(report, measured, predicted, said):
    report["table"]["tree"]["all"] |= {"speedup": measured, "predicted": predicted}
    report["table"]["block"]["all"] |= {"speedup": 1.0, "predicted": 1.0}
    lines = [line for line in remarks(report) if line.startswith("Unreliable")]
    assert len(lines) == bool(said) and all(said in line and "block" not in line for line in lines)


def test_one_trial_has_one_ratio(report):
    report["baseline"]["repeat_ratio"] = [1.345, 1.345, 1.345]
    said = " ".join(remarks(report))
    assert "within a trial: the ratio is 1.345." in said and "between" not in said


def test_figures_by_hand(report):
    """tree: 0.5 s on two prompts and 1 s on the hard one, against 1 s each: 3 x 1 / (0.5 + 1 + 0.5)
    over all.
    """
    tree, block = report["table"]["tree"], report["table"]["block"]
    assert tree["all"]["speedup"] == pytest.approx(1.5)
    assert tree["easy"]["speedup"] == pytest.approx(2.0) and tree["hard"][
        "speedup"
    ] == pytest.approx(1.0)
    assert block["all"]["speedup"] == pytest.approx(0.5)
    assert tree["all"]["prompt_quartiles"] == pytest.approx([1.5, 2.0, 2.0])  # of 1, 2, 2
    assert tree["all"]["by_repeat"] == pytest.approx([1.5, 1.5])
    assert tree["all"]["tokens_per_round"] == pytest.approx(4.0) and tree["all"][
        "accepted_per_round"
    ] == pytest.approx(3.0)
    assert (
        block["all"]["tokens_per_round"] == pytest.approx(1.0)
        and block["all"]["accepted_per_round"] == 0
    )
    assert tree["all"]["rows_per_pass"] == 4
    assert tree["all"]["predicted"] == pytest.approx(20 * 0.020 / 0.4)
    assert tree["easy"]["time"] == pytest.approx({"draft": 0.2, "verify": 0.6, "rest": 0.2})
    assert tree["all"]["tokens_per_second"] == pytest.approx(60 / 2.0)
    assert report["baseline"]["tokens_per_second"]["all"] == pytest.approx(20.0)
    assert report["baseline"]["repeat_ratio"] == [1.0, 1.0, 1.0]


def test_degenerate_text_is_counted_and_set_aside(report):
    tree = report["table"]["tree"]["all"]
    assert tree["degenerate"] == pytest.approx(1 / 3)
    assert tree["non_degenerate"]["speedup"] == pytest.approx(2 / 1.5)
    assert report["table"]["tree"]["hard"]["degenerate"] == 0
    assert any("repeat themselves" in r for r in report["remarks"])
    assert uniqueness([7] * 21) == 1 / 18 < DEGENERATE
    assert uniqueness([1, 2, 3]) == uniqueness([]) == 1.0
    assert uniqueness([1, 2, 3, 4, 1, 2, 3, 4]) == 4 / 5


def test_identity_is_checked_against_plain_decoding(tmp_path):
    runners = FakeRunners().by_label()
    tree = runners["tree"]

    def strays(prompt, seed):
        run = tree(prompt, seed)
        if prompt == "hard":
            run.ids = run.ids[:5] + [1] + run.ids[6:]
        return run

    runners["tree"] = strays
    lines = measure(runners, PROMPTS, plan(), tmp_path)
    report = make_report(lines)
    assert (
        report["table"]["tree"]["all"]["identical"] == pytest.approx(2 / 3)
        and report["table"]["block"]["all"]["identical"] == 1
    )
    assert {
        h["runs"]["tree"]["first_difference"]
        for h in lines
        if h["kind"] == "trial" and h["prompt"] == "h1"
    } == {5}
    assert any("Not token-identical" in r and "tree" in r for r in report["remarks"])


def test_the_baseline_is_the_faster_plain_kernel_and_both_its_runs():
    def row(seconds, one_row):
        return {"ids": PROSE, "seconds": seconds, "one_row_rate": one_row, "tokens": 21}

    assert baseline_rate({"baseline": [row(1.0, None), row(3.0, None)]}) == pytest.approx(10.0)
    assert baseline_rate({"baseline": [row(1.0, 30.0), row(1.0, 20.0)]}) == pytest.approx(25.0)
    assert baseline_rate({"baseline": [row(1.0, 5.0), row(1.0, 5.0)]}) == pytest.approx(20.0)
    assert baseline_rate({"baseline": [{**row(0.0, None), "ids": [1]}, row(0.0, None)]}) is None


def test_answers_of_one_token_have_no_speed(tmp_path):
    def one_token(run):
        return lambda prompt, seed: replace(
            run(prompt, seed), ids=[2], seconds=0.0, accepted=[], rows=[]
        )

    runners = {label: one_token(run) for label, run in FakeRunners().by_label().items()}
    report = make_report(measure(runners, PROMPTS, plan(), tmp_path))
    assert (
        report["table"]["tree"]["all"]["speedup"] is None
        and report["table"]["tree"]["all"]["tokens_per_round"] is None
    )
    assert "long enough" in page(report)
    cli.print_report(report, Console(file=io.StringIO()))
    assert speedup([]) is None


def test_nothing_measured_is_refused(tmp_path):
    with pytest.raises(UserError, match="no measured runs"):
        make_report([])
