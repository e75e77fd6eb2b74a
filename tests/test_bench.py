"""The bench: prompt files, interleaving, resuming after a kill, figures by hand, a report that needs no network."""

from __future__ import annotations

import argparse
import json
import threading
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from tiny import tiny_engine

import specdemo.bench.cli as cli
import specdemo.engine
from specdemo.bench import load_report, load_suite, make_report, short_run
from specdemo.bench.html import page, save_html
from specdemo.bench.lanes import BASELINE, LaneRun, parse_methods, race_lanes, uniqueness
from specdemo.bench.report import DEGENERATE, save_report, speedup
from specdemo.bench.run import RUNS, Plan, measure, order, resume
from specdemo.bench.suite import Item
from specdemo.engine import Sampling
from specdemo.errors import Refusal
from specdemo.events import ArToken, Done, DraftMade, Prefill, Start, Verify

GREEDY = Sampling().to_dict()


# -- prompt files ------------------------------------------------------------------------------------------------------------

def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_suite_reads_both_forms_and_takes_the_first_turn(tmp_path):
    rows = [{"question_id": 81, "category": "writing", "turns": ["a \u2028 b", "later"], "reference": []}, {"id": "x/1", "category": "qa", "turns": ["b"], "source": "s"}]
    suite = load_suite(write(tmp_path / "question.jsonl", *rows, ""))
    assert suite.items == (Item("81", "writing", "a \u2028 b"), Item("x/1", "qa", "b"))
    assert suite.name == "question.jsonl" and len(suite.sha256) == 64


def test_a_limit_takes_the_categories_in_turn(tmp_path):
    rows = [{"id": f"{c}{i}", "category": c, "turns": ["p"]} for c, n in (("a", 3), ("b", 1), ("c", 2)) for i in range(n)]
    suite = load_suite(write(tmp_path / "s.jsonl", *rows))
    assert [i.id for i in suite.first(5)] == ["a0", "b0", "c0", "a1", "c1"]
    assert suite.first(None) == suite.first(99) and len(suite.first(99)) == 6
    with pytest.raises(Refusal, match="at least 1"):
        suite.first(0)


GOOD = {"id": "1", "category": "a", "turns": ["p"]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no prompts"),
        (["not json"], "line 1 is not JSON"),
        ([GOOD, "[" * 5000], "line 2 is not JSON"),
        (["[1]"], "not a JSON object"),
        ([{"category": "a", "turns": ["p"]}], "no id"),
        ([{**GOOD, "id": True}], "no id"),
        ([{**GOOD, "category": 3}], "category"),
        ([{**GOOD, "turns": "p"}], "turns"),
        ([{**GOOD, "turns": []}], "turns"),
        ([{**GOOD, "turns": [" "]}], "turns"),
        ([{**GOOD, "turns": [{"text": "p"}]}], "turns"),
        ([GOOD, "", GOOD], "line 3.*twice"),
    ],
)
def test_junk_is_refused_with_its_line(tmp_path, lines, message):
    with pytest.raises(Refusal, match=message):
        load_suite(write(tmp_path / "s.jsonl", *lines))


def test_files_that_cannot_be_prompts_are_refused(tmp_path):
    with pytest.raises(Refusal, match="cannot be read"):
        load_suite(tmp_path / "none.jsonl")
    with pytest.raises(Refusal, match="cannot be read"):
        load_suite(tmp_path)
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refusal, match="UTF-8"):
        load_suite(tmp_path / "b")


# -- methods -----------------------------------------------------------------------------------------------------------------

def test_methods_with_settings():
    block, point = parse_methods("ar, block:gamma=7 ,specdiff2:rule=point-mass:drafts=4,block:gamma=7")
    assert (block.label, block.method, block.rule, block.params) == ("block:gamma=7", "block", "match", {"gamma": "7"})
    assert (point.method, point.rule, point.params) == ("specdiff2", "point-mass", {"drafts": "4"})
    assert block.title.endswith("(gamma=7)")


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "at least one"), ("ar", "at least one"), ("nope", "no method"), ("block:gamma", "not a setting"), ("block:gamma=1e9", "gamma"), ("block:x=1", "no parameter"), ("block:rule=ratio", "ratio")],
)
def test_methods_that_cannot_run_are_refused(text, message):
    with pytest.raises(Refusal, match=message):
        parse_methods(text)


def test_the_order_alternates():
    assert [order("abc", 0, r) for r in (0, 1, 2)] == [list("abc"), list("cba"), list("abc")]
    assert {order("abc", p, 0)[0] for p in range(3)} == set("abc")


# -- measuring with lanes that are told what to take -------------------------------------------------------------------------

FACTS = {
    "pair": "tiny",
    "hardware": "an abacus",
    "dtype": "float32",
    "versions": {"torch": "1"},
    "cost_ms": {"1": 10.0, "4": 12.0},
    "ar_width": 1,
    "weights": "w",
    "params": {"gamma": 3},
    "rule": "match",
}
PROSE = list(range(100, 121))  # 20 decoded tokens, nothing repeats


class Abacus:
    """Lanes with fixed times that log their calls: plain takes 1 s for 20 tokens, fast 0.5 s in 5 rounds, slow 2 s."""

    def __init__(self, die_after: int | None = None):
        self.calls, self.die_after = [], die_after

    def lane(self, label, seconds, accepted=()):
        def run(prompt, seed):
            self.calls.append((label, prompt, seed))
            if self.die_after is not None and len(self.calls) > self.die_after:
                raise KeyboardInterrupt
            if prompt == "refuse me":
                raise Refusal("The prompt is too long; shorten it.")
            factor = 2.0 if prompt == "hard" and label == "fast" else 1.0
            return LaneRun(
                ids=[7] * 21 if prompt == "loop" else PROSE,
                text="<b>words</b>",
                seconds=seconds * factor,
                ttft_seconds=0.1,
                accepted=list(accepted),
                rows=[4] * len(accepted),
                draft_seconds=0.1 * len(accepted) / 5,
                verify_seconds=0.3 * len(accepted) / 5,
                predicted_seconds=0.4 if accepted else None,
                plain_ms=20.0,
                result={"rule": "match", "output_ids": PROSE},
                facts=FACTS,
            )

        return run

    def lanes(self):
        return {BASELINE: self.lane(BASELINE, 1.0), "block": self.lane("block", 2.0, [0] * 20), "tree": self.lane("fast", 0.5, [3, 3, 3, 3, 3])}


ITEMS = (Item("e1", "easy", "easy"), Item("h1", "hard", "hard"), Item("e2", "easy", "loop"))


def plan(**more):
    return Plan(**{"suite": "s.jsonl", "sha256": "ab" * 32, "prompts": 3, "pair": "tiny", "methods": ("block", "tree"), "repeats": 2, "max_new_tokens": 21, "sampling": GREEDY, **more})


def heats(lines):
    return [(line["prompt"], line["repeat"]) for line in lines if line["kind"] == "heat"]


def test_every_heat_is_written_and_interleaved(tmp_path):
    abacus = Abacus()
    told = []
    lines = measure(abacus.lanes(), ITEMS, plan(), tmp_path, lambda *a: told.append(a))
    assert heats(lines) == [(i.id, r) for r in range(2) for i in ITEMS]
    assert [c[0] for c in abacus.calls[:3]] == ["ar", "block", "fast"]  # warm-up
    assert [c[0] for c in abacus.calls[3:11]] == ["ar", "block", "fast", "ar", "ar", "fast", "block", "ar"]
    assert [c[0] for c in abacus.calls[15:19]] == ["ar", "fast", "block", "ar"]  # second repeat, first prompt: reversed
    assert {c[2] for c in abacus.calls[3:15]} == {0} and {c[2] for c in abacus.calls[15:]} == {1}
    assert [json.loads(x) for x in (tmp_path / RUNS).read_bytes().split(b"\n") if x] == json.loads(json.dumps(lines))
    assert told[-1][:2] == (6, 6) and told[1][:2] == (0, 6)


@pytest.mark.parametrize("calls", [2, 3, 8, 13, 26])
def test_a_killed_run_goes_on_after_its_last_whole_heat(tmp_path, calls):
    with pytest.raises(KeyboardInterrupt):
        measure(Abacus(calls).lanes(), ITEMS, plan(), tmp_path)
    with (tmp_path / RUNS).open("ab") as file:
        file.write(b'{"kind":"heat","prompt":"e1","rep')  # what a kill in the middle of a write leaves
    before = heats(resume(tmp_path / RUNS, plan()))
    again = Abacus()
    lines = measure(again.lanes(), ITEMS, plan(), tmp_path)
    assert heats(lines)[: len(before)] == before
    assert sorted(heats(lines)) == sorted((i.id, r) for r in range(2) for i in ITEMS)
    assert len(again.calls) == 3 + 4 * (6 - len(before))
    assert make_report(lines)["complete"]
    untouched = Abacus()
    assert heats(measure(untouched.lanes(), ITEMS, plan(), tmp_path)) == heats(lines) and not untouched.calls


def test_another_plan_or_another_machine_is_not_mixed_in(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(Abacus(8).lanes(), ITEMS, plan(), tmp_path)
    with pytest.raises(Refusal, match="different bench"):
        measure(Abacus().lanes(), ITEMS, plan(max_new_tokens=5), tmp_path)
    other = Abacus().lanes()
    base = other[BASELINE]
    other[BASELINE] = lambda prompt, seed: replace(base(prompt, seed), facts={**FACTS, "dtype": "bfloat16"})
    with pytest.raises(Refusal, match="other hardware"):
        measure(other, ITEMS, plan(), tmp_path)
    (tmp_path / RUNS).write_text("hello\n")
    with pytest.raises(Refusal, match="not a bench result"):
        measure(Abacus().lanes(), ITEMS, plan(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="cannot be used"):
        measure(Abacus().lanes(), ITEMS, plan(), tmp_path / "file")


def test_a_refused_prompt_is_left_out_and_named(tmp_path):
    lines = measure(Abacus().lanes(), (*ITEMS, Item("long", "easy", "refuse me")), plan(prompts=4), tmp_path)
    report = make_report(lines)
    assert report["complete"] and report["table"]["tree"]["all"]["prompts"] == 3
    assert report["refused"] == ["long: ar: The prompt is too long; shorten it."] * 2


# -- figures by hand ---------------------------------------------------------------------------------------------------------

@pytest.fixture()
def report(tmp_path):
    return make_report(measure(Abacus().lanes(), ITEMS, plan(), tmp_path))


def test_figures_by_hand(report):
    """tree: 0.5 s on two prompts and 1 s on the hard one, against 1 s each: 3 x 1 / (0.5 + 1 + 0.5) over all."""
    tree, block = report["table"]["tree"], report["table"]["block"]
    assert tree["all"]["speedup"] == pytest.approx(1.5)
    assert tree["easy"]["speedup"] == pytest.approx(2.0) and tree["hard"]["speedup"] == pytest.approx(1.0)
    assert block["all"]["speedup"] == pytest.approx(0.5)
    assert tree["all"]["prompt_quartiles"] == pytest.approx([1.5, 2.0, 2.0])  # of 1, 2, 2
    assert tree["all"]["by_repeat"] == pytest.approx([1.5, 1.5])
    assert tree["all"]["tokens_per_round"] == pytest.approx(4.0) and tree["all"]["accepted_per_round"] == pytest.approx(3.0)
    assert block["all"]["tokens_per_round"] == pytest.approx(1.0) and block["all"]["accepted_per_round"] == 0
    assert tree["all"]["rows_per_pass"] == 4
    assert tree["all"]["predicted"] == pytest.approx(20 * 0.020 / 0.4)
    assert tree["easy"]["time"] == pytest.approx({"draft": 0.2, "verify": 0.6, "rest": 0.2})
    assert tree["all"]["tokens_per_second"] == pytest.approx(60 / 2.0)
    assert report["plain"]["tokens_per_second"]["all"] == pytest.approx(20.0)
    assert report["plain"]["against_itself"] == [1.0, 1.0, 1.0]


def test_degenerate_text_is_counted_and_set_aside(report):
    tree = report["table"]["tree"]["all"]
    assert tree["degenerate"] == pytest.approx(1 / 3)
    assert tree["sound"]["speedup"] == pytest.approx(2 / 1.5)
    assert report["table"]["tree"]["hard"]["degenerate"] == 0
    assert any("repeat themselves" in r for r in report["remarks"])
    assert uniqueness([7] * 21) == 1 / 18 < DEGENERATE
    assert uniqueness([1, 2, 3]) == uniqueness([]) == 1.0
    assert uniqueness([1, 2, 3, 4, 1, 2, 3, 4]) == 4 / 5


def test_identity_is_checked_against_the_plain_lane(tmp_path):
    lanes = Abacus().lanes()
    tree = lanes["tree"]

    def strays(prompt, seed):
        run = tree(prompt, seed)
        if prompt == "hard":
            run.ids = run.ids[:5] + [1] + run.ids[6:]
        return run

    lanes["tree"] = strays
    lines = measure(lanes, ITEMS, plan(), tmp_path)
    report = make_report(lines)
    assert report["table"]["tree"]["all"]["identical"] == pytest.approx(2 / 3) and report["table"]["block"]["all"]["identical"] == 1
    assert {h["runs"]["tree"]["first_difference"] for h in lines if h["kind"] == "heat" and h["prompt"] == "h1"} == {5}
    assert any("Not token-identical" in r and "tree" in r for r in report["remarks"])


def test_the_baseline_is_the_faster_plain_kernel_and_both_its_runs():
    def row(seconds, one_row):
        return {"ids": PROSE, "seconds": seconds, "one_row_rate": one_row, "tokens": 21}

    from specdemo.bench.report import baseline_rate

    assert baseline_rate({"baseline": [row(1.0, None), row(3.0, None)]}) == pytest.approx(10.0)
    assert baseline_rate({"baseline": [row(1.0, 30.0), row(1.0, 20.0)]}) == pytest.approx(25.0)
    assert baseline_rate({"baseline": [row(1.0, 5.0), row(1.0, 5.0)]}) == pytest.approx(20.0)
    assert baseline_rate({"baseline": [{**row(0.0, None), "ids": [1]}, row(0.0, None)]}) is None


def test_answers_of_one_token_have_no_speed(tmp_path):
    def one_token(run):
        return lambda prompt, seed: replace(run(prompt, seed), ids=[2], seconds=0.0, accepted=[], rows=[])

    lanes = {label: one_token(run) for label, run in Abacus().lanes().items()}
    report = make_report(measure(lanes, ITEMS, plan(), tmp_path))
    assert report["table"]["tree"]["all"]["speedup"] is None and report["table"]["tree"]["all"]["tokens_per_round"] is None
    assert "long enough" in page(report) and cli.text_table(report)
    assert speedup([]) is None


def test_nothing_measured_is_refused(tmp_path):
    with pytest.raises(Refusal, match="no measured runs"):
        make_report([])


# -- the report's files ------------------------------------------------------------------------------------------------------

class Page(HTMLParser):
    VOID = {"meta", "br", "link", "img", "hr", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.links, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_html_needs_no_network_and_carries_no_markup_from_names(report, tmp_path):
    report["methods"]["tree"]["title"] = "<script>alert(1)</script>"
    report["environment"]["hardware"] = "CPU <img src=x onerror=alert(1)>"
    report["plan"]["suite"] = "</title><script>x</script>"
    save_html(report, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    parsed = Page()
    parsed.feed(text)
    parsed.close()
    assert not parsed.open and not parsed.links
    assert parsed.tags.count("table") == 4 and text.count("Plotly.newPlot(") >= 5 and "img" not in parsed.tags
    assert "cdn.plot.ly" not in text.split("<body>")[0]
    assert not list(tmp_path.glob("*.part"))
    for word in ("1.50", "CPU &lt;img", "ab" * 32, "otherwise idle", "torch 1"):
        assert word in text


def test_the_json_is_compact_and_carries_no_text(report, tmp_path):
    save_report(report, tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert "words" not in text and "hard\"" in text and len(text) < 12_000
    assert load_report(tmp_path / "r.json")["table"]["tree"]["all"]["speedup"] == 1.5
    for name in ("hardware", "dtype", "versions", "pair", "commits", "started", "load_at_start", "idle"):
        assert name in report["environment"]
    for junk in ("{}", "[" * 9999, "nope"):
        (tmp_path / "j").write_text(junk)
        with pytest.raises(Refusal, match="not a bench report"):
            load_report(tmp_path / "j")
    with pytest.raises(Refusal, match="cannot be read"):
        load_report(tmp_path / "none")
    with pytest.raises(Refusal, match="cannot be written"):
        save_report(report, tmp_path / "no" / "r.json")
    with pytest.raises(Refusal, match="cannot be written"):
        save_html(report, tmp_path / "no" / "r.html")


# -- the engine's lanes, from events -----------------------------------------------------------------------------------------

def fake_race(log):
    def race(engine, request, cancel=None):
        log.append(request)
        common = {"pair": "tiny", "hardware": "an abacus", "dtype": "float32", "versions": {"torch": "1"}, "cost_ms": {"1": 10.0, "2": 11.0, "4": 12.0}, "ar_width": 2}
        yield Start(prompt=request.prompt, method=request.method, rule=request.rule, weights="none", params=vars(request.params), **common)
        yield Prefill(lane=request.lanes, id=1)
        if cancel is not None and cancel.is_set():
            yield Done({"spec": None, "ar": {}}, stopped=True)
            return
        result = {"rule": request.rule, "finish_reason": "length", "output_ids": [1, 2, 3, 4, 5], "ar": None, "spec": None}
        if request.lanes == "ar":
            yield ArToken(position=1, id=2, clock=0.04)
            result["ar"] = {"tokens": 5, "seconds": 0.04, "ttft_seconds": 0.01, "one_row_tokens_per_second": 110.0}
        else:
            kept = [[("accepted", 2), ("accepted", 3), ("correction", 4)], [("accepted", 5)]]  # the second round was cut at the limit
            for number, tokens in enumerate(kept):
                yield DraftMade(number, [1], [-1], [None], ["x"])
                yield Verify(number, 4, [{"id": i, "source": s} for s, i in tokens], draft_seconds=0.001, verify_seconds=0.008, rest_seconds=0.001)
            result["spec"] = {"tokens": 5, "seconds": 0.02, "ttft_seconds": 0.01, "rounds": 2, "draft_seconds": 0.002, "verify_seconds": 0.016}
        yield Done(result, ar_text="a", spec_text="b")

    return race


@pytest.fixture()
def log(monkeypatch):
    requests = []
    monkeypatch.setattr(specdemo.engine, "race", fake_race(requests))
    return requests


def test_lanes_read_the_races_events(log):
    lanes = race_lanes(None, parse_methods("block:gamma=5"), Sampling(temperature=0.5), 5)
    plain, spec = lanes[BASELINE]("p", 3), lanes["block:gamma=5"]("p", 3)
    assert [r.lanes for r in log] == ["ar", "spec"] and all(not r.record and r.sampling.seed == 3 and r.sampling.temperature == 0.5 for r in log)
    assert log[1].params.gamma == 5
    assert (plain.text, plain.seconds, plain.one_row_rate, plain.accepted, plain.predicted_seconds) == ("a", 0.04, 110.0, [], None)
    assert (spec.text, spec.accepted, spec.rows, spec.draft_seconds) == ("b", [2, 1], [4, 4], 0.002)
    assert spec.predicted_seconds == pytest.approx(2 * 0.012 + 0.002) and spec.plain_ms == 10.0
    assert "facts" not in spec.to_dict() and spec.facts["hardware"] == "an abacus"


ENGINE = SimpleNamespace(loaded=SimpleNamespace(pair=SimpleNamespace(id="tiny")))


def test_the_short_run_reports_as_it_goes(log):
    steps = list(short_run(ENGINE, ["block", "lookup"], ["one", "two"], 5))
    assert [round(done, 2) for done, _, _ in steps] == [0.0, 0.0, 0.5, 1.0]
    assert steps[1][1] is None and steps[2][1]["table"]["block"]["all"]["prompts"] == 1
    final = steps[-1][1]
    assert final["complete"] and final["table"]["lookup"]["all"]["speedup"] == pytest.approx((4 / 0.02) / 110)
    assert "one" not in json.dumps(final["prompts"])
    with pytest.raises(Refusal, match="no prompt"):
        next(short_run(ENGINE, "block", [], 5))


def test_real_races_on_a_tiny_target(tmp_path):
    """No fake: the engine's own events, greedy and sampled, through measuring, figures and pages."""
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, seed=5)
        specs = parse_methods("lookup,lookup:gamma=3")
        items = (Item("a", "one", "abcabcabcabc"), Item("b", "two", "hello hello hello"))
        made = plan(methods=("lookup", "lookup:gamma=3"), prompts=2, max_new_tokens=12, sampling=sampling.to_dict())
        lines = measure(race_lanes(tiny_engine(), specs, sampling, 12), items, made, tmp_path / str(temperature))
        report = make_report(lines)
        for row in report["table"].values():
            s = row["all"]
            assert s["identical"] == 1.0 and s["runs"] == 4 and s["speedup"] > 0 and s["predicted"] > 0
            assert s["tokens_per_round"] == pytest.approx(s["accepted_per_round"] + 1, abs=0.3)  # the last round may be cut
            assert sum(s["time"].values()) == pytest.approx(1)
        assert report["plain"]["repeats_itself"] and "float32" in page(report)


def test_stopping_the_short_run_keeps_what_is_complete(log):
    cancel = threading.Event()
    steps = []
    for step in short_run(ENGINE, "block", ["one", "two", "three"], 5, cancel=cancel):
        steps.append(step)
        if step[2].startswith("prompt 2"):
            cancel.set()
    assert steps[-1][2] == "stopped" and steps[-1][0] == pytest.approx(1 / 3)
    assert steps[-1][1]["table"]["block"]["all"]["prompts"] == 1


def arguments(*words):
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


def test_the_command_writes_both_reports_and_resumes(log, tmp_path, monkeypatch, capsys):
    suite = write(tmp_path / "s.jsonl", *({"id": str(i), "category": "ab"[i % 2], "turns": ["p"]} for i in range(4)))
    monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: ENGINE)
    words = ["--suite", str(suite), "--methods", "block,lookup", "--limit", "2", "--repeats", "2", "--max-new-tokens", "5", "--out", str(tmp_path / "out")]
    assert cli.bench_main(arguments(*words)) == 0
    assert "block" in capsys.readouterr().out
    report = load_report(tmp_path / "out" / "report.json")
    assert report["complete"] and report["plan"]["prompts"] == 2 and report["categories"] == ["a", "b"]
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000  # plotly.js is inside
    runs = len(log)
    assert cli.bench_main(arguments(*words)) == 0 and len(log) == runs

    race, words[-1] = specdemo.engine.race, str(tmp_path / "interrupted")

    def interrupted(engine, request, cancel=None):
        if len(log) >= runs + 3 + 4 + 2:  # warm-up, one heat, two lanes of the next
            raise KeyboardInterrupt
        return race(engine, request, cancel)

    monkeypatch.setattr(specdemo.engine, "race", interrupted)
    assert cli.bench_main(arguments(*words)) == 130
    partial = load_report(tmp_path / "interrupted" / "report.json")
    assert not partial["complete"] and partial["table"]["block"]["all"]["runs"] == 1
    monkeypatch.setattr(specdemo.engine, "race", race)
    assert cli.bench_main(arguments(*words)) == 0
    assert load_report(tmp_path / "interrupted" / "report.json")["complete"]
    for change in (["--repeats", "0"], ["--limit", "0"], ["--methods", "none"], ["--temperature", "nan"], ["--pair", "no such pair"], ["--max-new-tokens", "0"]):
        with pytest.raises(Refusal):
            cli.bench_main(arguments(*words, *change))
