"""Sweeps: what is measured, that it goes on after an interruption, and what comes out."""

from __future__ import annotations

import csv
import io
import json

import pytest
from fake_runners import FakeRunners, write
from test_bench_report import HOSTILE, Page
from tiny import tiny_engine

import specdemo.bench.sweep.cli as cli
import specdemo.engine
from specdemo.__main__ import main
from specdemo.bench.methods import BASELINE, parse_methods
from specdemo.bench.sweep.page import page
from specdemo.bench.sweep.points import own_sweep
from specdemo.bench.sweep.presets import PRESETS
from specdemo.bench.sweep.result import csv_text
from specdemo.drafters import METHODS
from specdemo.errors import UserError


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_asked(name):
    """Its methods, settings and rules exist; each line's points differ; the paper is quoted."""
    sweep = PRESETS[name]
    for temperature in sweep.temperatures:
        for config in parse_methods(sweep.labels(temperature)):
            METHODS[config.method].parse_params(config.params)
    for points in sweep.lines.values():
        assert len({(p.label, p.temperature) for p in points}) == len(points)
    assert sweep.paper and sweep.source and name == sweep.name


def test_a_sweep_of_ones_own_has_an_axis_and_lines():
    sweep = own_sweep("specdiff:reveal=left-to-right", ["gamma=2..10:4", "steps=1,2"])
    assert sweep.axis == "gamma" and list(sweep.lines) == ["steps=1", "steps=2"]
    assert [p.x for p in sweep.lines["steps=2"]] == ["2", "6", "10"]
    assert sweep.lines["steps=2"][1].label == "specdiff:reveal=left-to-right:gamma=6:steps=2"
    assert sweep.temperatures == (0.0,)


def test_the_answers_temperature_is_an_axis_of_its_own():
    sweep = own_sweep("block", ["answer-temperature=0,0.7,1"])
    assert sweep.temperatures == (0.0, 0.7, 1.0)
    assert {p.label for p in sweep.points} == {"block"} and sweep.labels(0.7) == ("block",)


@pytest.mark.parametrize(
    ("varied", "says"),
    [
        ([], "Name one setting to vary"),
        (["a=1", "b=2", "c=3"], "Name one setting to vary"),
        (["gamma"], "names no setting with values"),
        (["=3"], "names no setting with values"),
        (["gamma=1..999999999999"], "at most 40"),
        (["gamma=9..2"], "gives 0 values"),
        (["answer-temperature=warm"], "takes numbers"),
    ],
)
def test_what_cannot_be_varied_is_refused(varied, says):
    with pytest.raises(UserError, match=says):
        own_sweep("block", varied)


@pytest.fixture()
def fakes(monkeypatch, tmp_path):
    """The command with runners of fixed times: half a second at any setting of ``tree``."""
    made = FakeRunners()

    def make_runners(engine, configs, sampling, max_new_tokens):
        drawn = {c.label: made.runner("fast", 0.5, [3, 3, 3, 3, 3]) for c in configs}
        return {BASELINE: made.runner(BASELINE, 1.0)} | drawn

    monkeypatch.setattr(cli, "make_runners", make_runners)
    monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: tiny_engine())
    suite = write(tmp_path / "s.jsonl", *({"prompt": f"p{n}"} for n in range(3)))
    words = ["sweep", "tree", "--suite", str(suite), "--repeats", "1", "--out"]
    return made, [*words, str(tmp_path / "out")], tmp_path / "out"


def test_the_command_writes_curves_a_table_and_the_figures(fakes, capsys):
    made, words, out = fakes
    words += ["--vary", "budget=3,15", "--vary", "answer-temperature=0,1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "answer-temperature=1" in said and "2.00" in said
    result = json.loads((out / "sweep.json").read_text("utf-8"))
    assert result["complete"] and [len(line["points"]) for line in result["lines"]] == [2, 2]
    point = result["lines"][0]["points"][0]
    assert point["speedup"] == 2.0 == point["interval"][0] and point["tokens_per_round"] == 4.0
    assert point["accepted_at"] == [1.0, 1.0, 1.0] and point["tokens_interval"] == [4.0, 4.0]
    rows = list(csv.DictReader(io.StringIO((out / "sweep.csv").read_text("utf-8"))))
    assert [row["budget"] for row in rows] == ["3", "15", "3", "15"]
    assert rows[0]["accepted_at_least_3"] == "1.0" and rows[0]["speedup_low"] == "2.0"
    html = (out / "sweep.html").read_text("utf-8")
    parsed = Page()
    parsed.feed(html)
    assert not parsed.open and not parsed.links and html.count("Plotly.newPlot(") == 4
    asked = len(made.calls)
    assert main(words) == 0 and len(made.calls) == asked, "nothing is measured twice"


def test_an_interrupted_sweep_keeps_what_it_has_and_goes_on(fakes, capsys):
    made, words, out = fakes
    words += ["--vary", "budget=3", "--vary", "answer-temperature=0,1"]
    made.die_after = 15  # in the second temperature
    assert main(words) == 130
    first = json.loads((out / "sweep.json").read_text("utf-8"))
    assert not first["complete"] and first["lines"][0]["points"][0]["speedup"] == 2.0
    assert "not complete yet" in (out / "sweep.html").read_text("utf-8")
    made.die_after = None
    assert main(words) == 0
    assert json.loads((out / "sweep.json").read_text("utf-8"))["complete"]


def test_no_text_of_a_sweep_becomes_markup(fakes):
    _, words, out = fakes
    assert main([*words, "--vary", "budget=3"]) == 0
    text = (out / "sweep.json").read_text("utf-8")
    for word in ("tree: budget", "budget", "tree", "an abacus", "s.jsonl"):
        text = text.replace(json.dumps(word), json.dumps(HOSTILE + word))
    hostile = json.loads(text)
    parsed = Page()
    parsed.feed(page(hostile))
    assert not parsed.open and "img" not in parsed.tags
    assert csv_text(hostile).startswith("line,")


def test_refusals_come_before_anything_is_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: pytest.fail("loaded"))
    out = ["--out", str(tmp_path / "o")]
    for words, says in (
        (["nonsense", *out], "There is no sweep “nonsense”"),
        (["tree", *out], "There is no sweep “tree”"),
        (["tree", "--vary", "budget=999", *out], "budget"),
        (["tree-nodes"], "--out"),
        (["tree-nodes", "--repeats", "0", *out], "at least 1"),
    ):
        assert main(["sweep", *words]) == 1
        assert says in capsys.readouterr().err
    assert main(["sweep"]) == 0 and "specdiff2-drafts" in capsys.readouterr().out
    assert not (tmp_path / "o").exists()
