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
from fake_race import METHODS, NAMES, PAIRS, FakeBackend, fake_events

from specdemo.errors import UserError
from specdemo.traces import dump_trace, find_inconsistency, load_trace, parse_trace
from specdemo.ui import charts, lesson
from specdemo.ui.backend import BorderBackend, gpu_seconds
from specdemo.ui.controls import Limits, from_link
from specdemo.ui.export import export_html, safe_json
from specdemo.ui.server import Server
from specdemo.ui.streaming import DRAWN_SECONDS, Engines, Runs, windows
from specdemo.ui.visitors import Visitors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path):
    return Server(FakeBackend(), METHODS, PAIRS, Limits(), tmp_path)


def ask(
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
):
    return server.ask(prompt, method, pair, rule, new, temperature, top_p, seed, params or {})


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


def test_windows_keep_every_event_in_order_and_their_distance():
    now = [0.0]

    def ticking():
        for event in fake_events(tokens=30):
            now[0] += 0.01
            yield event

    groups, times = [], []
    for group in windows(ticking(), 0.04, lambda: now[0]):
        groups.append(group)
        times.append(now[0])
    assert [e["kind"] for g in groups for e in g] == [e.kind for e in fake_events(tokens=30)]
    assert len(groups[0]) == 1, "the first event must not wait"
    assert all(b - a >= 0.04 - 1e-9 for a, b in zip(times[:-2], times[1:-1], strict=True))


def test_missing_events_are_given_from_the_place_asked_for():
    runs = Runs(kept=2)
    runs.open("a").extend([{"kind": "start"}, {"kind": "done"}])
    assert runs.missing({"run": "a", "from": 1}) == [{"kind": "done"}]
    for junk in (None, [], {"run": "zzz", "from": 0}, {"run": "a"}, {"run": "a", "from": "0"}):
        assert runs.missing(junk) == []
    runs.open("b")
    runs.open("c")
    assert runs.missing({"run": "a", "from": 0}) == []


def test_everything_that_computes_shares_one_thread():
    """Loading and every step of every race: two threads would bring two OpenMP teams, which halve
    each other's speed.
    """
    seen = []

    def steps():
        for n in range(3):
            seen.append(threading.current_thread().name)
            yield n
        raise UserError("The end.")

    engines = Engines(
        lambda pair, progress: seen.append(threading.current_thread().name) or "engine"
    )
    list(engines.wait("x"))
    got = []
    with pytest.raises(UserError, match="The end"):
        for n in engines.thread.each(steps()):
            got.append((n, len(seen)))
    assert got == [(0, 2), (1, 3), (2, 4)], "an item is computed when it is asked for, not before"
    assert (
        set(seen) == {"engine"} and engines.thread.submit(threading.current_thread).result().daemon
    )
    assert list(engines.thread.each(iter("ab"))) == [
        "a",
        "b",
    ], "a race that failed takes nothing with it"


def test_a_race_waits_until_a_browser_beside_it_has_drawn(tmp_path):
    """The first window is told of after a while, the second never: that costs the patience once,
    then nobody is waited for.
    """
    server = Server(FakeBackend(pace=0.1), METHODS, PAIRS, Limits(), tmp_path)
    messages = server.messages(ask(server, new=30), threading.Event(), beside=True)
    first = next(m for m in messages if "events" in m)
    assert first["ack"] is True
    threading.Timer(
        0.15,
        lambda: server.runs.note_drawn(
            {"run": first["run"], "count": len(json.loads(first["events"]))}
        ),
    ).start()
    began = time.perf_counter()
    second = next(messages)
    assert (
        time.perf_counter() - began >= 0.14
        and second["ack"] is True
        and second["from"] == len(json.loads(first["events"]))
    )
    began = time.perf_counter()
    rest = list(messages)
    assert DRAWN_SECONDS <= time.perf_counter() - began < DRAWN_SECONDS + 3 and [
        m["ack"] for m in rest if "events" in m
    ] == [False] * sum("events" in m for m in rest)
    for junk in (None, {}, {"run": first["run"], "count": "x"}, {"run": "unknown", "count": 1}):
        server.runs.note_drawn(junk)
    assert set(server.runs.drawn) == {first["run"]}


def test_the_drawn_counts_go_with_their_runs():
    runs = Runs(kept=2)
    for name in "abc":
        runs.open(name)
        runs.note_drawn({"run": name, "count": 1})
    assert set(runs.drawn) == {"b", "c"}


def test_engines_load_once_and_report_progress():
    calls = []

    def factory(pair, progress):
        calls.append(pair)
        progress("half", 0.5)
        return pair.upper()

    engines = Engines(factory)
    list(engines.wait("x"))
    list(engines.wait("x"))
    assert engines.get("x") == "X" and calls == ["x"]
    list(engines.wait("y"))
    assert engines.get("y") == "Y"
    with pytest.raises(UserError):
        engines.get("x")


def test_a_failed_load_is_told_and_tried_again():
    attempts = []

    def factory(pair, progress):
        attempts.append(pair)
        if len(attempts) == 1:
            raise UserError("The disk is full; free some space.")
        return "engine"

    engines = Engines(factory)
    with pytest.raises(UserError, match="disk is full"):
        list(engines.wait("x"))
    list(engines.wait("x"))
    assert engines.get("x") == "engine"


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
        ({"prompt": "refuse me"}, "refused"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(server, change, words):
    with pytest.raises(UserError, match=words) as refusal:
        ask(server, **change)
    assert "\n" not in str(refusal.value) and str(refusal.value).endswith(".")


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
    messages = list(server.messages(ask(server), threading.Event()))
    events = [e for m in messages if "events" in m for e in json.loads(m["events"])]
    assert [e["kind"] for e in events] == [e.kind for e in fake_events(method="block", tokens=16)]
    assert messages[-1]["ended"] and len({m["run"] for m in messages}) == 1


def test_closing_the_messages_ends_the_race(server):
    server.backend.pace = 0.2
    messages = server.messages(ask(server, new=64), threading.Event())
    while "events" not in next(messages):
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
    assert from_link({"method": "block", "seed": "3"}, METHODS, list(PAIRS), limits) == (
        {"method": "block", "params": {}, "seed": 3},
        [],
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


def test_lanes_of_the_chart_end_at_what_was_written():
    events = [e.to_dict() for e in fake_events(tokens=25)]
    ar, spec = charts.lanes(events)
    assert ar[-1][1] == spec[-1][1] == 25 and ar[-1][0] > spec[-1][0] > 0
    figure = charts.tokens_over_time(events)
    assert len(figure.to_json()) < 12_000 and [len(t.x) for t in figure.data] == [
        len(ar),
        len(spec),
    ]


@pytest.mark.parametrize("n", [1, 5, 256, 257, 511, 1000])
def test_thinned_curves_keep_their_ends(n):
    points = [(float(i), i) for i in range(n)]
    thin = charts.thin(points)
    assert len(thin) <= charts.MAX_POINTS and thin[0] == points[0] and thin[-1] == points[-1]


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


def test_races_across_a_process_border_are_plain_and_refusals_come_through(monkeypatch):
    closed = []

    def stream(pair, ask):
        try:
            if ask["prompt"] == "no":
                yield {"refusal": "The GPU is busy; try again."}
            for event in fake_events(tokens=12):
                yield event.to_dict()
        finally:
            closed.append(pair)

    border = BorderBackend(stream)
    assert not border.can_bench
    ask = {"prompt": "yes", "max_new_tokens": 12}
    assert [e["kind"] for e in border.race("p", ask, threading.Event())] == [
        e.kind for e in fake_events(tokens=12)
    ]
    with pytest.raises(UserError, match="GPU is busy"):
        list(border.race("p", ask | {"prompt": "no"}, threading.Event()))
    cancel = threading.Event()
    cancel.set()
    assert len(list(border.race("p", ask, cancel))) == 1
    assert closed == ["p"] * 3
    assert (
        30
        <= gpu_seconds("p", {"max_new_tokens": 1})
        < gpu_seconds("p", {"max_new_tokens": 256})
        <= 60
    )


def test_a_press_that_arrives_after_its_tab_was_closed_is_nobodys_wait():
    visitors = Visitors()
    visitors.leave("a")
    ghost = visitors.enter("a", "too late")  # the tab is gone and nobody will come for it
    other = visitors.enter("b")
    assert visitors.ahead(other) == 0
    assert visitors.begin(ghost).wish == "too late", (
        "but if the line was only broken for a moment, it runs"
    )
    for k in range(200):
        visitors.leave(f"s{k}")
        visitors.enter(f"s{k}")
    assert len(visitors.tickets) < 40 and visitors.ahead(visitors.enter("c")) <= 2
    assert visitors.begin(other) is not None, "a visitor's own ticket is never thrown away"


def test_a_ticket_ends_by_a_newer_one_by_stop_and_by_leaving():
    visitors = Visitors()
    first = visitors.enter("a", "a wish")
    running = visitors.begin(first)
    assert running.wish == "a wish" and visitors.begin(first) is None, "one ticket, one run"
    second = visitors.enter("a")
    assert running.cancel.is_set(), "Run again means: this one instead"
    assert (
        visitors.stop("a") is True
        and list(visitors.tickets) == [first]
        and visitors.begin(second) is None
    ), "given back while waiting, and forgotten at once"
    third = visitors.enter("a")
    cancel = visitors.begin(third).cancel
    assert visitors.stop("a") is False and cancel.is_set()
    visitors.finish(first)
    visitors.finish(third)
    assert visitors.stop("a") is False and visitors.begin("never given out") is None
    other = visitors.enter("b")
    visitors.enter("a")
    third = visitors.enter("c")
    assert (visitors.ahead(other), visitors.ahead(third)) == (0, 2)
    assert not visitors.begin(other).cancel.is_set(), "one visitor's Stop is nobody else's"
    visitors.stop("a")
    assert visitors.ahead(third) == 1, "who gave up is not waited for"
    visitors.stop("b")
    assert visitors.ahead(third) == 0, "nor a race that is ending"
