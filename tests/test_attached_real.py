"""A real llama.cpp, started twice on the loopback, raced as an attached pair."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from specdemo.attached.race import attach, race
from specdemo.attached.wire import Endpoint
from specdemo.bench.peers.gguf_files import original
from specdemo.models.pairs import get_pair
from specdemo.models.served import Served
from specdemo.request import Request
from specdemo.traces import dump_trace, parse_trace

pytestmark = pytest.mark.real
PROMPT = "Explain why the sky is blue."


@pytest.fixture(scope="module")
def attached():
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the wheel xllamacpp of requirements-dev.txt is not installed")
    gguf = original(get_pair("smollm2-135m"), lambda message, fraction=None: None)
    script = Path(__file__).with_name("serve_llamacpp.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(gguf), drafts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for drafts in ("plain", "draft")
    ]
    try:
        plain, speculative = (process.stdout.readline().strip() for process in processes)
        yield attach("there", Served("llama.cpp", plain, speculative, drafts="itself, 5 tokens"))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def counted(attached):
    found = attached.client.counters(attached.speculative)
    return {"rounds": found.rounds, "drafted": found.drafted, "accepted": found.accepted}


def settled(attached, before, drafted):
    end = time.monotonic() + 5
    while time.monotonic() < end:
        after = counted(attached)
        if after["drafted"] - before["drafted"] == drafted:
            break
        time.sleep(0.05)
    return {name: after[name] - before[name] for name in after}


def test_rounds_and_drafts_are_those_of_the_engines_own_counters(attached):
    before = counted(attached)
    events = list(race(attached, Request(PROMPT, max_new_tokens=32)))
    parse_trace(dump_trace(events))
    result, served = events[-1].result, events[-1].result["served"]
    assert served["rounds"] == "told" and served["clock"] == "engine"
    drafts = [len(event.tokens) for event in events if event.kind == "draft"]
    assert sum(drafts) == served["drafted"] and len(drafts) == result["spec"]["rounds"]
    assert settled(attached, before, served["drafted"]) == {
        "rounds": sum(n > 0 for n in drafts),
        "drafted": served["drafted"],
        "accepted": served["accepted"],
    }
    ids = {
        "ar": [e.id for e in events if e.kind == "ar_token"],
        "spec": [t["id"] for e in events if e.kind == "verify" for t in e.kept],
    }
    assert ids["ar"] == ids["spec"] and len(ids["ar"]) == 31 and min(ids["ar"]) >= 0
    assert served["comparison"] == "tokens"
    assert served["by_position"] and max(served["by_position"]) <= 1


def test_stop_frees_the_slot_within_a_second(attached):
    cancel = threading.Event()
    for event in race(attached, Request(PROMPT, max_new_tokens=900, lanes="spec"), cancel):
        if event.kind == "verify":
            cancel.set()
    assert event.stopped
    began = time.monotonic()
    # within a second on a quiet machine; the whole answer would take half a minute
    while busy(attached.speculative) and time.monotonic() < began + 8:
        time.sleep(0.02)
    assert not busy(attached.speculative)


def busy(endpoint: Endpoint) -> bool:
    return any(slot["is_processing"] for slot in endpoint.get("/slots").data)
