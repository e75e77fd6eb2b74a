"""Reports and measurements of version 1 still load, with the same figures; damaged ones are refused
with one sentence.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest
from fake_runners import PROMPTS, FakeRunners, plan

from specdemo.bench import load_report, make_report
from specdemo.bench.measure import measure
from specdemo.bench.migrate import upgrade_report
from specdemo.bench.runs_file import RUNS, resume
from specdemo.errors import UserError
from specdemo.prompts import Prompt

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "assets" / "bench" / "smollm2-135m-108-prompts.json"
NEW_NAMES = {
    "plain": "baseline",
    "others_share": "other_load",
    "against_itself": "repeat_ratio",
    "repeats_itself": "repeatable",
    "sound": "non_degenerate",
    "follow": "markov_head",
    "sleep": "adaptive",
}


def packed(name):
    return gzip.decompress((ROOT / "tests" / "data" / name).read_bytes())


def numbers(value, path=()):
    """Path -> number of everything in a report but its version."""
    if isinstance(value, dict):
        found = (numbers(v, (*path, NEW_NAMES.get(k, k))) for k, v in value.items())
    elif isinstance(value, list):
        found = (numbers(v, (*path, k)) for k, v in enumerate(value))
    else:
        value = {"yes": True, "no": False}.get(value, value)
        return {path: value} if isinstance(value, (int, float)) and path != ("version",) else {}
    return {place: number for inner in found for place, number in inner.items()}


def test_a_report_of_version_1_keeps_every_number(tmp_path):
    old = json.loads(packed("bench_report_v1.json.gz"))
    (tmp_path / "old.json").write_bytes(packed("bench_report_v1.json.gz"))
    new = load_report(tmp_path / "old.json")
    assert old["version"] == 1 and new["version"] == 4
    assert numbers(new) == numbers(old) and len(numbers(old)) > 3_000
    assert [p["id"] for p in new["prompts"]] == [p["id"] for p in old["prompts"]]
    assert {k: m["title"] for k, m in new["methods"].items()} == {
        k: m["title"] for k, m in old["methods"].items()
    }
    assert len(new["remarks"]) == len(old["remarks"])
    assert new["remarks"][1:] == old["remarks"][1:] and "noise." not in new["remarks"][0]
    assert new["environment"]["other_load"] == 0.0054355


def test_the_shipped_report_is_the_old_one_in_new_words():
    assert json.loads(SHIPPED.read_bytes()) == upgrade_report(
        json.loads(packed("bench_report_v1.json.gz"))
    )
    assert load_report(SHIPPED)["complete"]


def test_measurements_of_version_1_give_the_same_figures_and_are_continued(tmp_path):
    prompts = (*PROMPTS, Prompt("long", "easy", "refuse me"))
    lines = packed("bench_runs_v1.jsonl.gz").splitlines(keepends=True)
    (tmp_path / RUNS).write_bytes(b"".join(lines))
    whole = make_report(resume(tmp_path / RUNS, plan(prompts=5)))
    old = json.loads(packed("bench_runs_report_v1.json.gz"))
    measured = numbers(whole)
    assert {place: measured[place] for place in numbers(old)} == numbers(old)
    assert whole["refused"] == old["refused"]

    (tmp_path / RUNS).write_bytes(b"".join(lines[:5]) + b'{"kind":"heat","prompt":"e1","rep')
    runners = FakeRunners()
    again = measure(runners.by_label(), prompts, plan(prompts=5), tmp_path)
    stored = [json.loads(line) for line in (tmp_path / RUNS).read_bytes().splitlines()]
    assert stored == json.loads(json.dumps(again)) and stored[0]["version"] == 3
    kinds = [line["kind"] for line in stored]
    assert kinds.count("trial") == 8 and kinds.count("session") == 2 and "heat" not in kinds
    for category, figures in old_words(old["table"]["block"]).items():
        now = make_report(again)["table"]["block"][category]
        assert {name: now[name] for name in figures} == figures
        assert now["accepted_at"] == [] and now["unflagged"] is not None


def old_words(value):
    if isinstance(value, dict):
        return {NEW_NAMES.get(key, key): old_words(inner) for key, inner in value.items()}
    return value


def without(*path):
    def change(report):
        *outer, last = path
        for key in outer:
            report = report[key]
        del report[last]

    return change


def replaced(value, *path):
    def change(report):
        *outer, last = path
        for key in outer:
            report = report[key]
        report[last] = value

    return change


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize(
    "change",
    [
        without("table"),
        without("table", "block"),
        without("table", "block", "all"),
        without("table", "block", "qa", "speedup"),
        without("methods", "block", "title"),
        without("prompts", 0, "methods", "block"),
        without("prompts", 0, "methods", "block", 1),
        replaced("fast", "table", "block", "all", "speedup"),
        replaced([1.0], "table", "block", "all", "prompt_quartiles"),
        replaced(None, "environment"),
        replaced({}, "environment"),
        replaced([], "methods"),
        replaced("x", "categories"),
        replaced(7, "refused"),
        replaced({"all": 1.0}, "table", "block", "all", "time"),
    ],
)
def test_a_damaged_report_is_refused_with_one_sentence(tmp_path, version, change):
    report = json.loads(packed("bench_report_v1.json.gz"))
    report = copy.deepcopy(report if version == 1 else upgrade_report(report))
    change(report)
    (tmp_path / "r.json").write_text(json.dumps(report))
    with pytest.raises(UserError, match="is damaged; make it again"):
        load_report(tmp_path / "r.json")
