"""What comes out: pages and files that need no network, and the engine's runners behind the command
and the page's button.
"""

from __future__ import annotations

import argparse
import json
import threading
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from fake_runners import PROMPTS, FakeRunners, plan, write
from tiny import tiny_engine

import specdemo.bench.cli as cli
import specdemo.engine
from specdemo.bench import load_report, make_report, short_run
from specdemo.bench.html import fragment, page, save_html
from specdemo.bench.measure import measure
from specdemo.bench.methods import BASELINE, parse_methods
from specdemo.bench.report import save_report
from specdemo.bench.runners import make_runners
from specdemo.errors import UserError
from specdemo.events import ArToken, Done, DraftMade, Prefill, Start, Verify
from specdemo.prompts import Prompt
from specdemo.request import Sampling


@pytest.fixture()
def report(tmp_path):
    return make_report(measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path))


# -- the report's files ----------------------------------------------------------------------------


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
    assert (
        parsed.tags.count("table") == 5
        and text.count("Plotly.newPlot(") == 6
        and "img" not in parsed.tags
    )
    assert "cdn.plot.ly" not in text.split("<body>")[0]
    assert not list(tmp_path.glob("*.part"))
    for word in ("1.50", "CPU &lt;img", "ab" * 32, "otherwise idle", "torch 1"):
        assert word in text


HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def test_no_text_of_a_report_becomes_markup(report):
    """Labels, titles, categories, remarks, settings and versions: whatever a file may hold."""
    text = json.dumps(report)
    for word in ("block", "easy", "s.jsonl", "an abacus", "torch", "gamma", "tiny", "match"):
        text = text.replace(json.dumps(word), json.dumps(HOSTILE + word))
    hostile = json.loads(text)
    hostile["remarks"].append(HOSTILE)
    for made in (fragment(hostile), page(hostile)):
        parsed = Page()
        parsed.feed(made)
        assert not parsed.open and not parsed.links and "img" not in parsed.tags
        assert made.count("&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;") > 10


def test_the_json_is_compact_and_carries_no_text(report, tmp_path):
    save_report(report, tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert "words" not in text and 'hard"' in text and len(text) < 12_000
    assert load_report(tmp_path / "r.json")["table"]["tree"]["all"]["speedup"] == 1.5
    for name in (
        "hardware",
        "dtype",
        "versions",
        "pair",
        "commits",
        "started",
        "load_at_start",
        "idle",
    ):
        assert name in report["environment"]
    for junk in ("{}", "[" * 9999, "nope"):
        (tmp_path / "j").write_text(junk)
        with pytest.raises(UserError, match="not a bench report"):
            load_report(tmp_path / "j")
    with pytest.raises(UserError, match="cannot be read"):
        load_report(tmp_path / "none")
    with pytest.raises(UserError, match="could not be written"):
        save_report(report, tmp_path / "no" / "r.json")
    with pytest.raises(UserError, match="could not be written"):
        save_html(report, tmp_path / "no" / "r.html")


# -- the engine's runners, from events ------------------------------------------------------------


def fake_race(log):
    def race(engine, request, cancel=None):
        log.append(request)
        common = {
            "pair": "tiny",
            "hardware": "an abacus",
            "dtype": "float32",
            "versions": {"torch": "1"},
            "cost_ms": {"1": 10.0, "2": 11.0, "4": 12.0},
            "ar_width": 2,
            "baseline_ms": 10.0,
        }
        yield Start(
            prompt=request.prompt,
            method=request.method,
            rule=request.rule,
            weights="none",
            params=vars(request.params),
            **common,
        )
        yield Prefill(lane=request.lanes, id=1)
        if cancel is not None and cancel.is_set():
            yield Done({"spec": None, "ar": {}}, stopped=True)
            return
        result = {
            "rule": request.rule,
            "finish_reason": "length",
            "output_ids": [1, 2, 3, 4, 5],
            "ar": None,
            "spec": None,
        }
        if request.lanes == "ar":
            yield ArToken(position=1, id=2, clock=0.04)
            result["ar"] = {
                "tokens": 5,
                "seconds": 0.04,
                "ttft_seconds": 0.01,
                "one_row_tokens_per_second": 110.0,
            }
        else:
            # the second round was cut at the limit
            kept = [[("accepted", 2), ("accepted", 3), ("correction", 4)], [("accepted", 5)]]
            for number, tokens in enumerate(kept):
                yield DraftMade(number, [1], [-1], [None], ["x"])
                yield Verify(
                    number,
                    4,
                    [{"id": i, "source": s} for s, i in tokens],
                    ["accepted"],
                    draft_seconds=0.001,
                    verify_seconds=0.008,
                    rest_seconds=0.001,
                    predicted_ms=13.0,
                )
            result["spec"] = {
                "tokens": 5,
                "seconds": 0.02,
                "ttft_seconds": 0.01,
                "rounds": 2,
                "draft_seconds": 0.002,
                "verify_seconds": 0.016,
            }
        yield Done(result, ar_text="a", spec_text="b")

    return race


@pytest.fixture()
def log(monkeypatch):
    requests = []
    monkeypatch.setattr(specdemo.engine, "race", fake_race(requests))
    return requests


def test_runners_read_the_races_events(log):
    runners = make_runners(None, parse_methods("block:gamma=5"), Sampling(temperature=0.5), 5)
    plain, spec = runners[BASELINE]("p", 3), runners["block:gamma=5"]("p", 3)
    assert [r.lanes for r in log] == ["ar", "spec"] and all(
        not r.record and r.sampling.seed == 3 and r.sampling.temperature == 0.5 for r in log
    )
    assert log[1].params.gamma == 5
    assert (
        plain.text,
        plain.seconds,
        plain.one_row_rate,
        plain.accepted,
        plain.predicted_seconds,
    ) == ("a", 0.04, 110.0, [], None)
    assert (spec.text, spec.accepted, spec.rows, spec.draft_seconds) == ("b", [2, 1], [4, 4], 0.002)
    assert spec.predicted_seconds == pytest.approx(2 * 0.013) and spec.baseline_ms == 10.0
    assert "facts" not in spec.to_dict() and spec.facts["hardware"] == "an abacus"


ENGINE = SimpleNamespace(loaded=SimpleNamespace(pair=SimpleNamespace(id="tiny")))


def test_the_short_run_reports_as_it_goes(log):
    steps = list(short_run(ENGINE, ["block", "lookup"], ["one", "two"], 5))
    assert [round(done, 2) for done, _, _ in steps] == [0.0, 0.0, 0.5, 1.0]
    assert steps[1][1] is None and steps[2][1]["table"]["block"]["all"]["prompts"] == 1
    final = steps[-1][1]
    assert final["complete"] and final["table"]["lookup"]["all"]["speedup"] == pytest.approx(
        (4 / 0.02) / 110
    )
    assert "one" not in json.dumps(final["prompts"])
    with pytest.raises(UserError, match="no prompt"):
        next(short_run(ENGINE, "block", [], 5))


def test_real_races_on_a_tiny_target(tmp_path):
    """No fake: the engine's own events, greedy and sampled, through measuring, figures and
    pages.
    """
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, seed=5)
        specs = parse_methods("lookup,lookup:gamma=3")
        items = (Prompt("a", "one", "abcabcabcabc"), Prompt("b", "two", "hello hello hello"))
        made = plan(
            methods=("lookup", "lookup:gamma=3"),
            prompts=2,
            max_new_tokens=12,
            sampling=sampling.to_dict(),
        )
        lines = measure(
            make_runners(tiny_engine(), specs, sampling, 12),
            items,
            made,
            tmp_path / str(temperature),
        )
        report = make_report(lines)
        for row in report["table"].values():
            s = row["all"]
            assert (
                s["identical"] == 1.0 and s["runs"] == 4 and s["speedup"] > 0 and s["predicted"] > 0
            )
            # the last round may be cut
            assert s["tokens_per_round"] == pytest.approx(s["accepted_per_round"] + 1, abs=0.3)
            assert sum(s["time"].values()) == pytest.approx(1)
        assert report["baseline"]["repeatable"] and "float32" in page(report)


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
    suite = write(
        tmp_path / "s.jsonl",
        *({"id": str(i), "category": "ab"[i % 2], "turns": ["p"]} for i in range(4)),
    )
    monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: ENGINE)
    words = [
        "--suite",
        str(suite),
        "--methods",
        "block,lookup",
        "--limit",
        "2",
        "--repeats",
        "2",
        "--max-new-tokens",
        "5",
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.bench_main(arguments(*words)) == 0
    assert "block" in capsys.readouterr().out
    report = load_report(tmp_path / "out" / "report.json")
    assert (
        report["complete"] and report["plan"]["prompts"] == 2 and report["categories"] == ["a", "b"]
    )
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000  # plotly.js is inside
    runs = len(log)
    assert cli.bench_main(arguments(*words)) == 0 and len(log) == runs
    # measured already, so the same bench with another table
    words[3] = "block"
    assert cli.bench_main(arguments(*words, "--against", "lookup")) == 0 and len(log) == runs
    ratio, low, high = report["paired"]["block"]["lookup"]
    assert f"block over lookup: {ratio:.2f}× ({low:.2f}–{high:.2f})" in capsys.readouterr().out
    words[3] = "block,lookup"

    race, words[-1] = specdemo.engine.race, str(tmp_path / "interrupted")

    def interrupted(engine, request, cancel=None):
        if len(log) >= runs + 3 + 4 + 2:  # warm-up, one trial, two runs of the next
            raise KeyboardInterrupt
        return race(engine, request, cancel)

    monkeypatch.setattr(specdemo.engine, "race", interrupted)
    assert cli.bench_main(arguments(*words)) == 130
    partial = load_report(tmp_path / "interrupted" / "report.json")
    assert not partial["complete"] and partial["table"]["block"]["all"]["runs"] == 1
    monkeypatch.setattr(specdemo.engine, "race", race)
    assert cli.bench_main(arguments(*words)) == 0
    assert load_report(tmp_path / "interrupted" / "report.json")["complete"]
    monkeypatch.delattr(specdemo.engine, "load_engine")  # refused before anything is loaded
    said = "different bench: methods block,lookup there, block here; --repeats 2 there, 3 here."
    with pytest.raises(UserError, match=said):
        cli.bench_main(arguments(*words, "--methods", "block", "--repeats", "3"))
    for change in (
        ["--repeats", "0"],
        ["--limit", "0"],
        ["--methods", "none"],
        ["--temperature", "nan"],
        ["--pair", "no such pair"],
        ["--max-new-tokens", "0"],
    ):
        with pytest.raises(UserError):
            cli.bench_main(arguments(*words, *change))
