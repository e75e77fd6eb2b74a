"""A real ``transformers serve`` on the loopback with the small target, one endpoint for both lanes:
the request switches prompt lookup on.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from specdemo.attached.race import attach, race
from specdemo.errors import UserError
from specdemo.models.fetch import target_folder
from specdemo.models.pairs import get_pair
from specdemo.models.served import Served
from specdemo.request import Request
from specdemo.traces import dump_trace, parse_trace

pytestmark = [pytest.mark.real, pytest.mark.slow]
PROMPT = "Write the numbers from 1 to 5 three times, one line each: 1, 2, 3, 4, 5."
SERVE = "from transformers.cli.transformers import main; main()"
TOKENIZER = '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}'


@pytest.fixture(scope="module")
def attached(tmp_path_factory):
    if importlib.util.find_spec("openai") is None:
        pytest.skip("the package openai of requirements-dev.txt is not installed")
    model = tmp_path_factory.mktemp("served") / "model"
    shutil.copytree(target_folder(get_pair("smollm2-135m")), model, symlinks=False)
    (model / "tokenizer_config.json").write_text(TOKENIZER)  # which our loader does without
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    command = ["serve", str(model), "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, *command, "--dtype", "bfloat16"],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        yield started(Served("transformers", url, url, model=str(model)), process)
    finally:
        process.kill()
        process.wait()


def started(served, process):
    end = time.monotonic() + 120
    while True:
        try:
            return attach("there", served)
        except UserError:
            assert process.poll() is None and time.monotonic() < end, "it did not start"
            time.sleep(0.2)


def test_one_endpoint_answers_both_lanes(attached):
    events = list(race(attached, Request(PROMPT, max_new_tokens=40)))
    parse_trace(dump_trace(events))
    done = events[-1]
    result, served = done.result, done.result["served"]
    # “totals” where a pass had no text of its own, as the last one, which wrote the end token
    assert served["clock"] == "arrival" and served["rounds"] in ("inferred", "totals")
    assert served["drafted"] is served["accepted"] is None
    # its usage counts tokens plainly, and passes with lookup
    assert result["ar"]["tokens"] >= sum(e.kind == "ar_token" for e in events) + 1 > 8
    rounds = [event for event in events if event.kind == "verify"]
    assert 1 <= len(rounds) <= result["spec"]["rounds"] < result["ar"]["tokens"] - 1, "it drafted"
    assert result["spec"]["tokens_per_second"] == 0 and set(result["output_ids"]) == {-1}
    assert done.ar_text.startswith(done.spec_text[: served["parted_at"]])
    if served["comparison"] == "text":
        assert result["speedup"] > 0


def test_stop_ends_its_answer(attached):
    cancel = threading.Event()
    for event in race(attached, Request(PROMPT, max_new_tokens=900, lanes="spec"), cancel):
        if event.kind in ("prefill_progress", "verify"):
            cancel.set()
    assert event.stopped and event.result["speedup"] is None
    began = time.monotonic()
    short = list(race(attached, Request("Say yes.", max_new_tokens=2, lanes="ar")))[-1]
    assert short.result["ar"]["tokens"] <= 2 and time.monotonic() < began + 10
