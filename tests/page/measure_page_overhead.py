"""Does drawing cost the race anything? Races with the page open in a browser and with no page at
all, in turns, on the real pair. A measurement for an idle machine, not a test:

    python tests/page/measure_page_overhead.py [METHOD] [TURNS]
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from gradio_client import Client
from playwright.sync_api import sync_playwright
from tools import ARGS, CHROMIUM, fill, press, state, view_of

ROOT = Path(__file__).resolve().parents[2]
PROMPT = (
    "A baker makes 24 rolls every morning. She sells 15 and gives 3 to her neighbour. How many"
    " rolls are left after 5 days? Think step by step."
)
TOKENS = 96  # the page's default


def start() -> tuple[subprocess.Popen, str, Client]:
    """The app on a free port, and a client once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=os.environ | {"GRADIO_SERVER_PORT": str(port)},
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            return app, url, Client(url, verbose=False)
        except Exception:
            if app.poll() is not None:
                raise SystemExit(
                    "The app ended by itself; start it with `python app.py` to see why."
                ) from None
            time.sleep(0.5)


def closed(client: Client, method: str) -> dict:
    job = client.submit(prompt=PROMPT, method=method, max_new_tokens=TOKENS, api_name="/race")
    job.result()
    return [event for text in job.outputs() for event in json.loads(text)][-1]["result"]


def opened(browser, url: str, method: str) -> dict:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(180_000)
    page.goto(f"{url}/?method={method}")
    view_of(page)
    page.wait_for_function("document.querySelector('#status').textContent.includes('Model loaded')")
    fill(page, "prompt", PROMPT)
    press(page, "Run")
    page.locator("#race-view .sd-badge", has_text="live").wait_for()
    while not state(page, "view.trace.done !== null && !view.running"):
        time.sleep(1)  # looked at seldom, so that looking costs nothing
    events = state(page, "view.options.server.missing_events({run: view.run, from: 0})")
    result = events[-1]["result"]
    page.close()
    time.sleep(1)
    return result


def main(method: str = "best", turns: str = "5") -> None:
    app, url, client = start()
    rows: dict[str, list[tuple[float, ...]]] = {"open": [], "closed": []}
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
            closed(client, method)  # warms up
            for turn in range(int(turns)):
                for kind in ("open", "closed")[:: 1 - 2 * (turn % 2)]:
                    r = opened(browser, url, method) if kind == "open" else closed(client, method)
                    rows[kind].append(
                        (r["ar"]["tokens_per_second"], r["spec"]["tokens_per_second"], r["speedup"])
                    )
                    print(kind, *(f"{x:.2f}" for x in rows[kind][-1]), flush=True)
            browser.close()
    finally:
        app.terminate()
    for kind, runs in rows.items():
        plain, fast, ratio = zip(*runs, strict=True)
        print(
            f"page {kind}: plain {statistics.median(plain):.1f}, {method}"
            f" {statistics.median(fast):.1f} tokens/s, speed-up {statistics.median(ratio):.2f}"
            f" ({min(ratio):.2f} to {max(ratio):.2f})"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
