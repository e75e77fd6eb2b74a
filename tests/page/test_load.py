"""Two hundred clients that enter, leave, stall and never read, on the loopback: memory, the line,
and a visitor who only wants to race. SPECDEMO_LOAD_SECONDS makes it longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("SPECDEMO_LOAD_SECONDS", "15"))
CLIENTS = 200
PATIENCE = 60.0  # until the line is empty
GROWTH = 50.0  # megabytes
LATE = 5  # races that begin while a visitor's own request travels
API = "gradio_api"


class MadeUpServer:
    """The server in a process of its own, so that its memory is its own."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("serve_made_up.py")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.url = self.process.stdout.readline().strip()

    def state(self) -> dict:
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> str:
        """Closes it; what stood in its log."""
        _, log = self.process.communicate(timeout=60)
        return log


class Page:
    """What a browser does when Run is pressed, without the browser."""

    def __init__(self, http: httpx.AsyncClient, config: dict, session: str, address: str):
        self.http, self.session = http, session
        self.headers = {"x-forwarded-for": address}
        listeners = config["dependencies"]
        values = {c["id"]: c["props"].get("value") for c in config["components"]}
        self.enter_fn = next(i for i, d in enumerate(listeners) if d["api_name"] == "on_run")
        self.run_fn = next(i for i, d in enumerate(listeners) if d["api_name"] == "run")
        self.values = [values[i] for i in listeners[self.enter_fn]["inputs"]]

    async def post(self, route: str, fn: int, data: list) -> httpx.Response:
        body = {"data": data, "fn_index": fn, "session_hash": self.session}
        return await self.http.post(f"{API}/{route}", json=body, headers=self.headers)

    async def enter(self, prompt: str) -> str:
        reply = await self.post("run/predict", self.enter_fn, [prompt, *self.values[1:]])
        return reply.text

    async def run(self) -> str:
        """Joins the line and reads to the end."""
        await self.post("queue/join", self.run_fn, [])
        query = {"session_hash": self.session}
        async with self.http.stream(
            "GET", f"{API}/queue/data", params=query, headers=self.headers, timeout=300
        ) as stream:
            return "".join([text async for text in stream.aiter_text()])


def address_of_client(k: int) -> str:
    return f"11.0.{k // 200}.{k % 200 + 1}"


async def misbehave(http: httpx.AsyncClient, config: dict, k: int, end: float, counts: dict):
    """One client: again and again one of the ways to be a nuisance."""
    rng, headers = random.Random(k), {"x-forwarded-for": address_of_client(k)}
    while time.monotonic() < end:
        how = rng.choice(("enter", "leave", "stall", "unread", "large", "upload", "run"))
        counts[how] = counts.get(how, 0) + 1
        page = Page(http, config, f"c{k}-{rng.random()}", headers["x-forwarded-for"])
        try:
            if how == "enter":
                await page.enter("x" * 3000)
            elif how == "run":
                await page.enter("A nuisance")
                await asyncio.wait_for(page.run(), 5)
            elif how == "large":
                await http.post(f"{API}/call/race", content=b"x" * 3_000_000, headers=headers)
            elif how == "upload":
                await http.post(f"{API}/upload", files={"files": b"x" * 1000}, headers=headers)
            else:
                body = {"data": ["A nuisance " + "x" * 3000, None, 48]}
                reply = await http.post(f"{API}/call/race", json=body, headers=headers)
                if how != "unread" and reply.status_code == 200:
                    path = f"{API}/call/race/{reply.json()['event_id']}"
                    async with http.stream("GET", path, headers=headers) as stream:
                        await anext(stream.aiter_raw(), b"")
                        await asyncio.sleep(rng.uniform(3, 8) if how == "stall" else 0)
        except (httpx.HTTPError, asyncio.TimeoutError):
            counts["cut off"] = counts.get("cut off", 0) + 1
        await asyncio.sleep(rng.uniform(0.5, 3))


async def crowd(server: MadeUpServer) -> tuple[dict, list]:
    """(how often what was done, [(races begun before its own, as many as it was told, whether it
    was read to its end, seconds) for each race of a well-behaved visitor]).
    """
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=30, limits=limits) as http:
        config = (await http.get("config")).json()
        end, counts, races = time.monotonic() + SECONDS, {}, []
        nuisances = [
            asyncio.create_task(misbehave(http, config, k, end, counts)) for k in range(CLIENTS)
        ]
        number = 0
        while time.monotonic() < end:
            await asyncio.sleep(SECONDS / 10)
            number += 1
            page = Page(http, config, f"visitor-{number}", "11.9.9.9")
            before, began = server.state()["races"], time.monotonic()
            while "queued" not in (told := await page.enter(f"Visitor {number}")):  # too many wait
                assert time.monotonic() < began + PATIENCE
                await asyncio.sleep(1)
                before = server.state()["races"]
            answer = await page.run()
            prompts = server.state()["prompts"]
            assert f"Visitor {number}" in prompts, answer[:2000]
            waited = prompts.index(f"Visitor {number}") - before
            position = re.search(r"(\d+|One) races? (?:is|are) ahead", told)
            promised = int(position[1].replace("One", "1")) if position else 0
            races.append((waited, promised, "done" in answer, round(time.monotonic() - began, 1)))
        await asyncio.gather(*nuisances)
    return counts, races


def test_a_crowd_that_misbehaves_costs_neither_memory_nor_the_line(capsys):
    server = MadeUpServer()
    try:
        for k in range(3):  # what the first races load is not growth
            reply = httpx.post(f"{server.url}{API}/call/race", json={"data": [f"Warm {k}"]})
            path = f"{server.url}{API}/call/race/{reply.json()['event_id']}"
            assert "done" in httpx.get(path, timeout=60).text
        first = server.state()
        counts, races = asyncio.run(crowd(server))
        busiest, end = server.state(), time.monotonic() + PATIENCE
        while (state := server.state())["waiting"] or state["in_line"]:
            assert time.monotonic() < end, state
            time.sleep(1)
    finally:
        log = server.end()
    growth = busiest["megabytes"] - first["megabytes"], state["megabytes"] - first["megabytes"]
    with capsys.disabled():
        print(f"\n{SECONDS:.0f} s: {counts}; races {busiest['races']}; visitor {races};")
        print(f"memory +{growth[0]:.1f} MB at the end, +{growth[1]:.1f} MB after; {state['last']=}")
    assert max(growth) < GROWTH
    assert state["most"] == 1 and state["sessions"] <= 100
    assert races and all(done for _, _, done, _ in races)
    assert all(waited <= promised + LATE for waited, promised, _, _ in races), "in its turn"
    assert "Traceback" not in log, log[-3000:]
