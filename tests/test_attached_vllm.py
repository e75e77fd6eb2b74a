"""A vLLM that is started by hand, raced as an attached pair: ``SPECDEMO_TEST_VLLM`` names both
addresses, the plain one first (``http://127.0.0.1:8000,http://127.0.0.1:8001``).
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from specdemo.attached.race import attach, race
from specdemo.models.served import Served
from specdemo.request import Request
from specdemo.traces import dump_trace, parse_trace

ADDRESSES = os.environ.get("SPECDEMO_TEST_VLLM", "")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not ADDRESSES, reason="SPECDEMO_TEST_VLLM names no vLLM"),
]
PROMPT = "Repeat this list three times: apple, banana, cherry, dates, elderberry, fig, grape."


@pytest.fixture(scope="module")
def attached():
    plain, speculative = ADDRESSES.split(",")
    return attach("there", Served("vllm", plain, speculative))


def test_the_race_is_what_vllm_counts(attached):
    events = list(race(attached, Request(PROMPT, max_new_tokens=64)))
    parse_trace(dump_trace(events))
    result, served = events[-1].result, events[-1].result["served"]
    assert result["ar"]["tokens"] == 64 and served["rounds"] in ("told", "inferred", "totals")
    if served["rounds"] != "totals":  # else chunks were merged on a busy machine
        drafts = [len(event.tokens) for event in events if event.kind == "draft"]
        assert sum(drafts) == served["drafted"] > 0
        assert len(drafts) == result["spec"]["rounds"] < 63
    assert served["by_position"], "nobody else was served"


def test_stop_ends_the_request(attached):
    cancel = threading.Event()
    request = Request(PROMPT, max_new_tokens=900, lanes="ar")
    threading.Timer(1.0, cancel.set).start()
    done = list(race(attached, request, cancel))[-1]
    assert done.stopped
    end = time.monotonic() + 8
    while attached.client.counters(attached.plain).running and time.monotonic() < end:
        time.sleep(0.05)
    assert attached.client.counters(attached.plain).running == 0
