"""What the documentation says of the page without its page: the examples of the endpoint, run as
they are printed; the start command; listeners called without a browser.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fake_backend import FakeBackend
from tools import serving

from specdemo.ui.examples import EXAMPLES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page(assets):
    """(url, demo) of one page."""
    with serving(FakeBackend(), assets) as (url, demo):
        yield url, demo


def documented(language: str) -> str:
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    return re.search(rf"```{language}\n(.*?)```", text, re.S)[1]


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_documented_curl_call_works(page):
    env = os.environ | {"URL": page[0].rstrip("/")}
    done = subprocess.run(
        ["bash", "-ec", documented("sh")], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "Why is the sky blue?" in done.stdout
    assert "event: complete" in done.stdout and '\\"done\\"' in done.stdout


def test_the_documented_python_call_works(page, capsys):
    exec(documented("python"), {"URL": page[0]})
    speedup, identical = capsys.readouterr().out.splitlines()[-1].split()
    assert float(speedup) > 0 and identical == "True"


def test_the_start_command_explains_itself_and_takes_nothing_else():
    def start(*words):
        command = [sys.executable, str(ROOT / "app.py"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    told = start("--help")
    assert told.returncode == 0 and "--host" in told.stdout and "--port" in told.stdout
    refused = start("--prot", "7000")
    assert refused.returncode == 2 and "--prot" in refused.stderr
    assert "Traceback" not in refused.stderr and "Running" not in refused.stdout
    assert "1 to 65535" in start("--port", "99999").stderr


def test_a_port_that_is_taken_is_said_in_a_sentence(page):
    port = page[0].rstrip("/").rpartition(":")[2]
    command = [sys.executable, str(ROOT / "app.py"), "--port", port]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("app.py: the page cannot be served there")


def call(page, name: str, data: list) -> list:
    """What the listener of that name returns."""
    url, demo = page
    listener = next(fn for fn in demo.fns.values() if fn.name == name)
    body = {"data": data, "fn_index": listener._id, "session_hash": "someone"}
    return httpx.post(f"{url}gradio_api/run/predict", json=body, timeout=30).json()["data"]


def test_stopping_a_measurement_says_what_it_stopped(page):
    assert call(page, "end", []) == ["Nothing is being measured."]
    _, demo = page
    methods, prompts = ["best"], list(EXAMPLES)[:1]
    assert "No method is chosen" in call(page, "enter", [[], prompts, 48])[0]
    assert call(page, "end", []) == ["Nothing is being measured."]
    assert call(page, "enter", [methods, prompts, 48]) == [""]
    assert call(page, "end", []) == ["Stopped before it began."]
    assert call(page, "end", []) == ["Nothing is being measured."] and not demo.races.queue.tickets


def test_gradios_own_words_have_a_text(page):
    """Its status line said the bare key “common.complete”, in every language."""
    config = httpx.get(f"{page[0]}config").json()
    assert config["i18n_translations"]["en"]["common.complete"] == "Complete"
