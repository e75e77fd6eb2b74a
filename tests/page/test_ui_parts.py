"""The parts of the page that need no browser."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from corrupt_traces import WRONG_TYPE, damaged
from fake_backend import METHODS, PAIRS, FakeBackend
from fake_race import NAMES, fake_events

from specdemo import drafters
from specdemo.errors import UserError
from specdemo.request import Request
from specdemo.traces import dump_trace, find_inconsistency, load_trace, parse_trace
from specdemo.ui import lesson
from specdemo.ui.backend import ZeroGpuBackend
from specdemo.ui.bench_tab import MAX_PROMPTS, make_bench_job
from specdemo.ui.controls import Limits, from_link, method_choices, rule_help
from specdemo.ui.examples import EXAMPLES
from specdemo.ui.export import export_html, safe_json
from specdemo.ui.jobs import RaceForm
from specdemo.ui.messages import Advance, Ended, Error, Events, Queued, Run, Status
from specdemo.ui.server import Server
from specdemo.ui.streaming import DRAWN_TIMEOUT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path):
    return Server(FakeBackend(), METHODS, PAIRS, Limits(), tmp_path)


def job(
    server,
    prompt="Hello",
    method="block",
    pair="fake",
    rule="match",
    new=16,
    temperature=0.0,
    top_p=1.0,
    seed=0,
    params=None,
    local_browser=False,
):
    form = RaceForm(prompt, method, pair, rule, new, temperature, top_p, seed, params or {})
    return server.make_job(form, local_browser=local_browser)


def test_the_page_imports_no_torch():
    code = "import sys, specdemo.ui.page, specdemo.drafters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("method", NAMES)
def test_made_up_races_are_real_traces(method):
    events = list(fake_events(method=method, tokens=30))
    assert [e.kind for e in parse_trace(dump_trace(events))] == [e.kind for e in events]
    written = sum(len(e.kept) for e in events if e.kind == "verify") + 1
    assert written == 30 == sum(e.kind == "ar_token" for e in events) + 1


def test_a_trace_that_no_race_has_told_is_refused():
    whole = [e.to_dict() for e in fake_events(tokens=40)]
    for name, events, words in damaged(whole):
        wanted = "wrong type" if name in WRONG_TYPE else f"do not fit together \\(.*{words}"
        with pytest.raises(UserError, match=wanted):
            parse_trace(dump_trace(events))
            pytest.fail(f"{name} was taken for a race")


def test_every_beginning_of_a_race_is_a_trace():
    for path in sorted((ROOT / "assets" / "traces").glob("*.json")):
        whole = load_trace(path)
        assert all(find_inconsistency(whole[:end]) is None for end in range(1, len(whole) + 1)), (
            path.name
        )


def test_a_race_waits_until_a_browser_beside_it_has_drawn(tmp_path):
    """The first window is told of after a while, the second never: that costs the patience once,
    then nobody is waited for.
    """
    server = Server(FakeBackend(pace=0.1), METHODS, PAIRS, Limits(), tmp_path)
    messages = server.messages(job(server, new=30, local_browser=True), threading.Event())
    first = next(m for m in messages if isinstance(m, Events))
    assert first.confirm is True
    threading.Timer(
        0.15,
        lambda: server.runs.note_drawn(
            {"run": first.run.id, "count": len(json.loads(first.events))}
        ),
    ).start()
    began = time.perf_counter()
    second = next(messages)
    assert (
        time.perf_counter() - began >= 0.14
        and second.confirm is True
        and second.offset == len(json.loads(first.events))
    )
    began = time.perf_counter()
    rest = list(messages)
    assert DRAWN_TIMEOUT <= time.perf_counter() - began < DRAWN_TIMEOUT + 3
    assert not any(m.confirm for m in rest if isinstance(m, Events))
    for junk in (None, {}, {"run": first.run.id, "count": "x"}, {"run": "unknown", "count": 1}):
        server.runs.note_drawn(junk)
    assert set(server.runs.drawn) == {first.run.id}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": "  \n"}, "empty"),
        ({"prompt": None}, "empty"),
        ({"prompt": "x" * 12_001}, "12,001"),
        ({"new": 5000}, "new tokens"),
        ({"new": None}, "must be numbers"),
        ({"seed": float("inf")}, "must be numbers"),
        ({"seed": -5}, "whole number from 0"),
        ({"seed": 1.5}, "whole number"),
        ({"seed": 10**12}, "whole number"),
        ({"pair": "/etc"}, "no pair"),
        ({"pair": ["x"]}, "no pair"),
        ({"method": "../x"}, "no method"),
        ({"method": "block", "rule": "ratio"}, "cannot use the rule"),
        ({"params": {"gamma": 99}}, "gamma must be"),
        ({"params": ["gamma"]}, "by name"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(server, change, words):
    with pytest.raises(UserError, match=words) as refusal:
        job(server, **change)
    assert "\n" not in str(refusal.value) and str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("methods", "prompts", "words"),
    [
        ([], 3, "No method is chosen"),
        (None, 3, "No method is chosen"),
        (["nope"], 3, "No method is chosen"),
        (["block"], 0, "No prompt is chosen"),
        (["block"], MAX_PROMPTS + 2, f"{MAX_PROMPTS + 2} prompts .* at most {MAX_PROMPTS}; .* 2"),
    ],
)
def test_a_short_bench_says_which_choice_is_wrong(methods, prompts, words):
    with pytest.raises(UserError, match=words):
        make_bench_job(methods, list(EXAMPLES)[:prompts], 48, METHODS)


def test_a_public_space_allows_less():
    public = Limits.from_env({"SPACE_ID": "someone/space"})
    assert (
        public.new_tokens < Limits().new_tokens
        and public.prompt_chars < Limits().prompt_chars
        and not public.every_pair
    )
    with pytest.raises(UserError):
        public.check("x", public.new_tokens + 1)


def test_messages_hold_the_whole_race(server):
    messages = list(server.messages(job(server), threading.Event()))
    events = [e for m in messages if isinstance(m, Events) for e in json.loads(m.events)]
    assert [e["kind"] for e in events] == [e.kind for e in fake_events(method="block", tokens=16)]
    assert isinstance(messages[-1], Ended) and messages[-1].total == len(events)
    assert len({m.run.id for m in messages}) == 1
    assert [m.run.request is not None for m in messages] == [True] + [False] * (len(messages) - 1)


def test_closing_the_messages_ends_the_race(server):
    server.backend.pace = 0.2
    messages = server.messages(job(server, new=64), threading.Event())
    while not isinstance(next(messages), Events):
        pass
    assert server.backend.running == 1
    messages.close()
    assert server.backend.running == 0


def test_links_fill_in_only_what_fits():
    limits = Limits()
    link, wrong = from_link(
        {
            "prompt": "Hi",
            "method": "specdiff",
            "rule": "ratio",
            "seed": "7",
            "new": "32",
            "temperature": "0.7",
            "top_p": "0.9",
            "pair": "slow",
            "params": '{"gamma": 3, "x": 1}',
        },
        METHODS,
        list(PAIRS),
        limits,
    )
    assert link == {
        "prompt": "Hi",
        "method": "specdiff",
        "rule": "ratio",
        "seed": 7,
        "new": 32,
        "temperature": 0.7,
        "top_p": 0.9,
        "pair": "slow",
        "params": {"gamma": 3, "x": 1},
    } and wrong == ["x"]
    junk, wrong = from_link(
        {
            "prompt": "x" * 20_000,
            "method": "nope",
            "rule": "ratio",
            "seed": "-1",
            "new": "1e9",
            "temperature": "nan",
            "pair": "/etc/passwd",
            "params": "[" * 5000,
        },
        METHODS,
        list(PAIRS),
        limits,
    )
    assert junk == {} and wrong == [
        "params",
        "prompt",
        "method",
        "rule",
        "pair",
        "seed",
        "new",
        "temperature",
    ]
    assert from_link(
        {"method": "block", "rule": "ratio", "params": "[1]"}, METHODS, list(PAIRS), limits
    ) == ({"method": "block", "params": {}}, ["params", "rule"])
    for params in ("notjson", "7", "null"):
        assert from_link({"params": params}, METHODS, list(PAIRS), limits) == ({}, ["params"])
    for gamma in ("7.5", "1e400", "1" * 401):
        link, wrong = from_link({"params": f'{{"gamma": {gamma}}}'}, METHODS, list(PAIRS), limits)
        assert wrong == ["gamma"], "of the page's own method, where the link names none"
    assert from_link({"method": "block", "seed": "3"}, METHODS, list(PAIRS), limits) == (
        {"method": "block", "params": {}, "seed": 3},
        [],
    )


def test_a_method_is_shown_by_its_short_name_first_and_a_rule_with_who_offers_it():
    shown = {name: label for label, name in method_choices(drafters.METHODS)}
    assert shown["best"].startswith("best: ") and shown["specdiff"] == "SpecDiff"
    assert rule_help(drafters.METHODS) == (
        "ratio with Small autoregressive drafter, SpecDiff, SpecDiff-2; point-mass with SpecDiff-2"
    )


def test_json_in_a_page_cannot_end_its_element():
    text = safe_json({"x": "</script><!-- \u2028\u2029"})
    assert "<" not in text and "\u2028" not in text and "\u2029" not in text
    assert json.loads(text) == {"x": "</script><!-- \u2028\u2029"}


def test_an_exported_page_asks_nobody_for_anything():
    page = export_html(list(fake_events()))
    assert (
        "default-src 'none'" in page
        and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
        and "https://" not in page
    )


def test_every_step_of_the_lesson_says_what_to_look_at():
    names = sorted({s["trace"] for s in lesson.STEPS})
    assert (
        len(lesson.available(lesson.STEPS, [*names, "specdiff-few", "specdiff-many"]))
        == len(lesson.STEPS)
        >= 10
    )
    assert all(s["look"] and s["points"] and s["text"] for s in lesson.STEPS)
    few = lesson.available(lesson.STEPS, ["specdiff"])
    assert {s["trace"] for s in few} == {"specdiff"} and not any("knob" in s for s in few)


def test_races_of_a_worker_process_are_plain_and_its_errors_come_through():
    closed = []

    def stream(pair, request):
        try:
            if request["prompt"] == "no":
                yield {"error": "The GPU is busy; try again."}
            for event in fake_events(tokens=12):
                yield event.to_dict()
        finally:
            closed.append(pair)

    backend = ZeroGpuBackend(stream)
    assert not backend.can_bench
    request = Request("yes", max_new_tokens=12)
    assert [e["kind"] for e in backend.race("p", request, threading.Event())] == [
        e.kind for e in fake_events(tokens=12)
    ]
    with pytest.raises(UserError, match="GPU is busy"):
        list(backend.race("p", Request("no"), threading.Event()))
    cancel = threading.Event()
    cancel.set()
    assert len(list(backend.race("p", request, cancel))) == 1
    assert closed == ["p"] * 3


def test_every_message_is_told_apart_by_its_type_and_from_the_one_before():
    run = Run("x", request={"prompt": "Hello"})
    messages = [
        Queued(None, "One race is ahead of yours."),
        Status("Loading", run),
        Events(run, 0, "[]"),
        Error("It is refused.", run),
        Advance(),
        Ended(run, 3),
    ]
    plain = [m.to_dict() for m in messages]
    assert [m["type"] for m in plain] == ["queued", "status", "events", "error", "advance", "ended"]
    assert plain[2]["run"]["id"] == "x" and json.loads(json.dumps(plain)) == plain
    assert Advance().to_dict() != Advance().to_dict(), "Gradio reports only a value that changed"
    received = (ROOT / "specdemo/ui/static/view.js").read_text(encoding="utf-8")
    assert all(f'case "{m["type"]}":' in received for m in plain), "the view knows every type"
