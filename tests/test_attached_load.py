"""Both endpoints under load: figures of scripted streams, the report, failures."""

from __future__ import annotations

import json

import pytest
from scripted_engine import ScriptedEngine, captured
from test_attached_failures import DRAFT, PLAIN
from test_attached_pairs import entry, pairs_of

from specdemo.__main__ import main
from specdemo.attached.load import Level, advice, cautions


def level(lane, streams, rate):
    return Level(lane, streams, 2, 80, 1.0, rate, (0.1, 0.2), (0.01, 0.02), None)


def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    lines = [json.dumps({"id": n, "category": "a", "turns": [f"question {n}"]}) for n in range(3)]
    path.write_text("\n".join(lines))
    return path


def loaded(tmp_path, monkeypatch, lines, kind="llama.cpp", plain=PLAIN):
    with ScriptedEngine(kind, plain, speculates=False) as first:
        with ScriptedEngine(kind, lines) as second:
            two = dict(kind=kind, plain=first.url, speculative=second.url, model="m")
            pairs_of(tmp_path, monkeypatch, entry(**two))
            command = ["load", "--pair", "mine", "--suite", str(suite(tmp_path))]
            code = main([*command, "--streams", "1,2", "--out", str(tmp_path / "out")])
            return code, len(first.bodies), len(second.bodies)


def test_every_stream_is_counted_and_reported(tmp_path, monkeypatch, capsys):
    assert loaded(tmp_path, monkeypatch, DRAFT) == (0, 1 + 2 + 4, 1 + 2 + 4)
    report = json.loads((tmp_path / "out" / "load.json").read_text())
    assert [(x["endpoint"], x["streams"]) for x in report["levels"]] == [
        ("ar", 1), ("spec", 1), ("spec", 2), ("ar", 2)
    ]  # fmt: skip
    two = report["levels"][2]
    assert two["answers"] == 4 and two["tokens"] == 4 * 40 and two["failed"] == 0
    assert two["accepted"] == pytest.approx(32 / 34)
    assert two["tokens_per_second"] == pytest.approx(two["tokens"] / two["seconds"])
    html = (tmp_path / "out" / "load.html").read_text()
    assert "An endpoint answers 1 at a time" in report["advice"]  # by its slots
    assert "under load" in html and "127.0.0.1" not in html + json.dumps(report)
    assert "127.0.0.1" not in "".join(capsys.readouterr())


def test_an_engine_that_counts_no_tokens_and_one_that_breaks(tmp_path, monkeypatch, capsys):
    lookup, plain = (captured(f"transformers_5.24.0_{name}_rep") for name in ("lookup", "plain"))
    assert loaded(tmp_path, monkeypatch, lookup, "transformers", plain)[0] == 1
    assert "counts no tokens" in capsys.readouterr().err
    assert loaded(tmp_path, monkeypatch, [*DRAFT[:9], "cut"])[0] == 1
    assert "broke the connection" in capsys.readouterr().err


def test_from_which_load_on_it_no_longer_pays():
    rates = {1: (10, 20), 4: (30, 45), 16: (90, 80)}
    levels = [
        level(lane, n, pair[i])
        for n, pair in rates.items()
        for i, lane in enumerate(("ar", "spec"))
    ]
    assert "stopped paying at 16 streams" in advice(levels) and "2.00 times" in advice(levels)
    assert "paid up to 4 streams" in advice(levels[:4])
    assert "did not pay, already with 16 streams" in advice(levels[4:])
    assert cautions(levels, 16) == [] == cautions(levels, None)


def test_a_curve_that_is_not_smooth_is_worded_by_what_was_measured():
    rates = {1: (10, 8), 2: (4, 12), 4: (12, 20)}
    levels = [
        level(lane, n, r[i]) for n, r in rates.items() for i, lane in enumerate(("ar", "spec"))
    ]
    said = advice(levels)
    assert "paid with 2 and 4 streams and did not with one stream" in said and "3.00 times" in said
    slots, fall = cautions(levels, 1)
    assert "answers 1 at a time" in slots and "-np 4" in slots
    assert "plain endpoint wrote 4.0 tokens per second with 2 streams after 10.0 with one" in fall


def test_a_pair_that_runs_here_is_refused(tmp_path, capsys):
    command = ["load", "--pair", "smollm2-135m", "--suite", "x", "--out", str(tmp_path / "out")]
    assert main(command) == 1 and "one answer at a time" in capsys.readouterr().err
    assert main([*command, "--streams", "0,x"]) == 1


def test_interrupted_it_reports_what_there_is_and_says_so(tmp_path, monkeypatch, capsys):
    def some(*_):
        yield level("ar", 1, 80.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("specdemo.commands.load.measure_load", some)
    assert loaded(tmp_path, monkeypatch, DRAFT)[0] == 130
    assert "Stopped" in capsys.readouterr().err and (tmp_path / "out" / "load.json").is_file()
