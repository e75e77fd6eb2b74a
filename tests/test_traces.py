"""Trace files: version 1 is migrated, wrong types are refused, the published schema is current."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fake_race import fake_events

from specdemo import traces
from specdemo.drafters import METHODS
from specdemo.errors import UserError
from specdemo.events import ArToken, Done, Prefill, Start, Verify
from specdemo.traces import dump_trace, load_trace, migrate, parse_trace, save_trace, trace_schema

ROOT = Path(__file__).resolve().parent.parent
VERSION_1 = sorted((Path(__file__).parent / "data" / "traces_v1").glob("*.json.gz"))
# recorded before the drafting time of empty rounds was part of what the costs predict
EMPTY_ROUNDS = {"ar": (0.912887, 0.912151), "lookup": (3.31107, 3.30581)}


def recorded(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def test_every_shipped_recording_of_version_1_is_kept():
    assert len(VERSION_1) == 13


@pytest.mark.parametrize("path", VERSION_1, ids=lambda path: path.name.partition(".")[0])
def test_a_recording_of_version_1_says_the_same(path):
    """It replays event by event, with the figures it had."""
    name = path.name.partition(".")[0]
    old = recorded(path)
    new = parse_trace(json.dumps(old))
    assert [e.kind for e in new] == [e["kind"] for e in old["events"]]
    start, rounds, done = new[0], [e for e in new if isinstance(e, Verify)], new[-1]
    assert isinstance(start, Start) and isinstance(done, Done)
    # what was written, and when
    for before, after in zip(old["events"], new, strict=True):
        same = {"id", "text", "position", "clock", "tokens", "parent", "kept", "status", "vocab"}
        told = after.to_dict()
        assert all(told[key] == before[key] for key in same & before.keys())
    spec = [e.id for e in new if isinstance(e, Prefill) and e.lane == "spec"]
    spec += [token["id"] for e in rounds for token in e.kept]
    assert spec == done.result["output_ids"]
    assert sum(isinstance(e, ArToken) for e in new) + 1 == done.result["ar"]["tokens"]
    # the figures
    totals = old["events"][-1]["result"]
    assert {k: v for k, v in done.result.items() if k != "predicted_speedup"} == {
        k: v for k, v in totals.items() if k != "predicted_speedup"
    }
    before, after = EMPTY_ROUNDS.get(name, (totals["predicted_speedup"],) * 2)
    assert totals["predicted_speedup"] == before
    assert done.result["predicted_speedup"] == pytest.approx(after, rel=3e-5)
    predicted = sum(e.predicted_ms for e in rounds)
    decoded = sum(len(e.kept) for e in rounds)
    assert decoded * start.baseline_ms / predicted == pytest.approx(after, rel=3e-5)
    # options under their names of today
    assert METHODS[start.method].parse_params(start.params)
    assert migrate(old)["events"] == [e.to_dict() for e in new]


@pytest.mark.parametrize("path", sorted((ROOT / "assets" / "traces").glob("*.json")), ids=str)
def test_a_shipped_recording_is_read_as_it_is_written(path):
    events = load_trace(path)
    assert [e.to_dict() for e in events] == json.loads(path.read_text("utf-8"))["events"]
    assert events[-1].result["identical"] and any(e.top for e in events if isinstance(e, Verify))


def version_1(*events: dict) -> str:
    return json.dumps({"format": "specdemo-trace", "version": 1, "events": list(events)})


def test_the_scores_of_version_1_get_names():
    drafts = [{"ids": [1], "score": 1.5}, {"ids": [2], "score": 2.5, "own": 1.25}]
    start = {"kind": "start", "method": "specdiff2", "params": {"argmax": "no"}}
    prefill = {"kind": "prefill", "lane": "spec"}
    draft = {"kind": "draft", "notes": {"drafts": drafts, "chosen": 1}}
    events = parse_trace(version_1(start, prefill, draft))
    assert events[0].params == {"argmax": False}
    assert events[2].notes == {
        "drafts": [
            {"ids": [1], "drafter_score": 1.5},
            {"ids": [2], "drafter_score": 1.25, "target_score": 2.5},
        ],
        "chosen": 1,
    }


@pytest.mark.parametrize(
    "events",
    [
        [{"kind": "start", "cost_ms": {"9" * 5000: 1.0}, "ar_width": 9}, {"kind": "prefill"}],
        [{"kind": "start", "cost_ms": {}, "one_row_ms": None}],
    ],
    ids=["a width beyond measure", "no costs"],
)
def test_version_1_without_costs_predicts_nothing(events):
    assert parse_trace(version_1(*events))[0].baseline_ms is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "event",
    [
        5,
        {"kind": "tokens"},
        {"kind": ["start"]},
        {"kind": "verify", "clock": "soon"},
        {"kind": "verify", "rows": "8"},
        {"kind": "verify", "kept": [{"id": 5}]},
        {"kind": "verify", "status": ["kept"]},
        {"kind": "draft", "notes": 5},
        {"kind": "draft", "notes": {"drafts": 5}},
        {"kind": "draft", "notes": {"drafts": [5, {"score": {}}]}},
        {"kind": "draft", "tokens": "two"},
        {"kind": "prefill", "lane": "left"},
        {"kind": "ar_token", "clock": float("inf")},
        {"kind": "done"},
        {"kind": "done", "result": {"speedup": 2.0}},
    ],
    ids=str,
)
def test_a_wrong_type_is_refused_in_a_sentence(event, version):
    text = json.dumps(
        {"format": "specdemo-trace", "version": version, "events": [{"kind": "start"}, event]}
    )
    with pytest.raises(UserError) as refusal:
        parse_trace(text)
    sentence = str(refusal.value)
    assert "choose a file saved with" in sentence and "\n" not in sentence


@pytest.mark.parametrize("version", [0, 3, "2", None, [1]])
def test_other_versions_are_refused(version):
    text = json.dumps({"format": "specdemo-trace", "version": version, "events": []})
    with pytest.raises(UserError, match="reads versions 1 and 2"):
        parse_trace(text)


def test_unknown_fields_are_ignored():
    events = parse_trace(
        dump_trace([{"kind": "start", "prompt": "hi", "weather": "fair"}, {"kind": "prefill"}])
    )
    assert events == [Start(prompt="hi"), Prefill()]


def test_events_round_trip():
    events = [Start(prompt="hi", baseline_ms=1 / 3), Prefill("ar", 5, "x", float("nan"), 0.1)]
    again = parse_trace(dump_trace(events))
    assert again[0].baseline_ms == 0.333333 and again[1].logprob is None
    assert [e.to_dict() for e in again] == [e.to_dict() for e in events]


def test_the_published_schema_is_current():
    """If not: ``python -m specdemo.traces > docs/trace.schema.json``."""
    published = (ROOT / "docs" / "trace.schema.json").read_text(encoding="utf-8")
    assert published == json.dumps(trace_schema(), indent=1, ensure_ascii=False) + "\n"


def test_a_trace_with_a_byte_order_mark_is_read(tmp_path):
    save_trace(list(fake_events(tokens=8)), tmp_path / "t.json")
    plain = load_trace(tmp_path / "t.json")
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "t.json").read_bytes())
    assert load_trace(tmp_path / "b.json") == plain


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
def test_a_race_whose_trace_is_too_large_is_saved_in_a_form_that_is_read_again(
    tmp_path, monkeypatch, share
):
    events = list(fake_events(method="specdiff", tokens=120))
    whole = len(dump_trace(events).encode())
    monkeypatch.setattr(traces, "MAX_TRACE_BYTES", int(whole * share))
    note = save_trace(events, tmp_path / "t.json")
    assert "first" in note and (tmp_path / "t.json").stat().st_size <= whole * share
    read = load_trace(tmp_path / "t.json")
    complete = int(note.split("first ")[1].split()[0])
    kinds = [e.kind for e in events if e.kind != "denoise" or e.round < complete]
    assert [e.kind for e in read] == kinds and 0 < complete
    for mine, theirs in zip(
        [e for e in events if e.kind == "verify"],
        [e for e in read if e.kind == "verify"],
        strict=True,
    ):
        assert (mine.kept, mine.status) == (theirs.kept, theirs.status)
    words = {k: v for e in events for k, v in getattr(e, "vocab", {}).items()}
    assert words == {k: v for e in read for k, v in getattr(e, "vocab", {}).items()}


def test_a_race_that_fits_in_no_form_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "MAX_TRACE_BYTES", 2000)
    with pytest.raises(UserError, match="ask for fewer new tokens"):
        save_trace(list(fake_events(tokens=120)), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize("path", VERSION_1, ids=lambda path: path.name.partition(".")[0])
def test_a_bench_predicts_what_the_race_does(path):
    from specdemo.bench.runners import collect

    run = collect(parse_trace(json.dumps(recorded(path))))
    predicted = (len(run.ids) - 1) * run.baseline_ms / 1e3 / run.predicted_seconds
    assert predicted == pytest.approx(run.result["predicted_speedup"], rel=1e-4)
