"""What the server refuses before anything is stored, over HTTP; traffic on the loopback only."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fake_backend import FakeBackend
from tools import serving, until

from specdemo.ui.client_address import address_of
from specdemo.ui.controls import Limits
from specdemo.ui.http_limits import HttpLimits
from specdemo.ui.page import SESSIONS
from specdemo.ui.readers import UNREAD_SECONDS, Readers

pytestmark = pytest.mark.slow

API = "gradio_api"


class Api:
    """Calls of the public endpoint, as curl makes them."""

    def __init__(self, url: str):
        self.http = httpx.Client(base_url=url, timeout=30)

    def post(self, body, route: str = "call/race", **more) -> httpx.Response:
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        headers = {"content-type": "application/json"} | more
        return self.http.post(f"{API}/{route}", content=text, headers=headers)

    def answer(self, event: str) -> str:
        with self.http.stream("GET", f"{API}/call/race/{event}") as stream:
            return "".join(stream.iter_text())

    def race(self, body, route: str = "call/race") -> list[dict] | str:
        """The events of a race, or the sentence that refuses it."""
        event = self.post(body, route).json()["event_id"]
        messages = [
            json.loads(line.removeprefix("data: "))
            for line in self.answer(event).splitlines()
            if line.startswith("data: ")
        ]
        if isinstance(messages[-1], dict):
            return messages[-1]["error"]
        return [e for m in messages[:-1] for e in json.loads(m[0])]


@pytest.fixture
def page(serve, assets):
    """(Api, backend, demo) of a page of this test's own."""
    backend = FakeBackend()
    url, demo = serve(backend, assets)
    return Api(url), backend, demo


def test_what_a_call_leaves_out_has_its_default(page):
    api, backend, _ = page
    for body in ({"data": ["Hi"]}, {"data": ["Hi", None, 8, None, None, None, None, None, None]}):
        events = api.race(body)
        assert events[0]["prompt"] == "Hi" and events[-1]["kind"] == "done"
    assert [a.max_new_tokens for a in backend.asked] == [64, 8]
    assert api.race({"prompt": "By name", "seed": 3}, "call/v2/race")[0]["prompt"] == "By name"
    assert {a.method for a in backend.asked} == {"best"}
    assert api.race({"prompt": "In", "dtype": "int4"}, "call/v2/race")[-1]["kind"] == "done"
    assert set(backend.keys[:-1]) == {"fake"} and backend.keys[-1] == "fake:int4"


@pytest.fixture(scope="module")
def shared(assets):
    """(Api, backend) of one page for calls that leave nothing behind."""
    backend = FakeBackend()
    with serving(backend, assets) as (url, _):
        yield Api(url), backend


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "prompt is empty"),
        ([{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}], "cannot be read"),
        ([["Hi"]], "prompt must be text, not ['Hi']"),
        (["Hi", "x" * 5000], "no method"),
        (["Hi", "block", "many"], "must be numbers"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", [1]], "by name"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", "x"], "by name"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", 5], "by name"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", {"gamma": 10**400}], "gamma must be"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", {"gamma": 7.5}], "gamma must be"),
        (["Hi", "block", 8, 0, 1, 0, "match", "fake", {"gamma": ["x" * 9000]}], "gamma must be"),
        (list(range(13)), "at most 12 values"),
    ],
)
def test_values_that_do_not_fit_are_refused_in_a_short_sentence(shared, capfd, values, words):
    api, backend = shared
    sentence = api.race({"data": values})
    assert words in sentence and len(sentence) < 300 and sentence.endswith(".")
    assert not backend.asked and capfd.readouterr().err == "", "nothing in the log"


def test_requests_that_fit_nothing_leave_nothing_in_the_log(page, capfd):
    api, _, demo = page
    fns = demo.fns.items()
    browsers = next(i for i, fn in fns if fn.fn is None)
    servers = next(i for i, fn in fns if fn.fn is not None and len(fn.inputs) > 2)
    wrong = [
        api.post({"max_new_tokens": 8}, "call/v2/race"),
        api.post({"prompt": "Hi", "nope": 1}, "call/v2/race"),
        api.post({"data": ["Hi"]}, "call/nope"),
        api.post({"data": ["Hi"]}, "run/race"),
        api.post({"data": [1, 2], "fn_index": servers, "session_hash": "s"}, "run/predict"),
        api.post({"data": [], "fn_index": browsers, "session_hash": "s"}, "run/predict"),
        api.post({"data": [], "fn_index": browsers, "session_hash": "s"}, "queue/join"),
        api.post({"data": [1], "fn_index": 9999, "session_hash": "s"}, "run/predict"),
        api.post({"data": [1], "fn_index": 9999, "session_hash": "s"}, "queue/join"),
    ]
    assert [r.status_code for r in wrong] == [400, 400, 400, 404, 500, 400, 400, 400, 400]
    assert all("Traceback" not in r.text and len(r.text) < 500 for r in wrong)
    assert api.http.get("/monitoring").status_code != 200  # Gradio's would print a key
    said = capfd.readouterr()
    assert said.err == "" and "Monitoring" not in said.out


def test_asking_for_answers_that_are_not_there_leaves_nothing_in_the_log(shared, capfd):
    for route in ("call/race/none", "queue/data?session_hash=none"):
        answer = shared[0].http.get(f"{API}/{route}")  # raises where the answer has no end
        assert answer.status_code == 200 and "Not Found" in answer.text
    assert "Traceback" not in capfd.readouterr().err


def test_large_requests_and_files_are_refused_before_they_are_read(page):
    api, _, demo = page
    folder = Path(demo.GRADIO_CACHE)
    before = sorted(folder.rglob("*")) if folder.exists() else []
    limit = demo.races.limits.body_bytes
    assert limit < 200_000
    # as the page's own Run does, with a prompt of 3 MB
    body = {"data": ["x" * 3_000_000, *[0] * 43], "fn_index": 0, "session_hash": "s"}
    assert api.post(body, "run/predict").status_code == 413
    chunks = (b"x" * 10_000 for _ in range(30))  # of unknown length
    assert api.http.post(f"{API}/call/race", content=chunks).status_code == 413
    assert api.post(b"x" * 30_000_000, "component_server").status_code == 413
    for route in (f"{API}/upload", "upload", f"{API}/upload?upload_id=x"):
        refused = api.http.post(route, files={"files": ("a.html", b"<b>x</b>")})
        assert refused.status_code == 404 and "takes no files" in refused.text
    data = {"component_id": "1", "session_hash": "x", "fn_name": "y"}
    refused = api.http.post(f"{API}/component_server", data=data, files={"f": b"x"})
    assert refused.status_code == 415
    assert (sorted(folder.rglob("*")) if folder.exists() else []) == before
    assert not demo.races.queue.tickets and not demo.races.last


def test_two_races_of_one_address_run_or_wait(page):
    api, backend, _ = page
    events = [api.post({"data": ["wait here"]}).json()["event_id"]]
    until(lambda: backend.running == 1)
    events.append(api.post({"data": ["Second"]}).json()["event_id"])
    sentence = api.race({"data": ["Third"]})
    assert sentence.startswith("2 races from your network address")
    backend.gate.set()
    assert all('\\"done\\"' in api.answer(event) for event in events)
    assert api.race({"data": ["Third"]})[0]["prompt"] == "Third", "when they have ended"
    assert [a.prompt for a in backend.asked] == ["wait here", "Second", "Third"]


def test_a_call_nobody_reads_ends_and_leaves_the_line(serve, assets):
    """One runs, one waits: after a while the first ends, the second never begins."""
    now = [0.0]
    backend = FakeBackend()
    url, demo = serve(backend, assets, limits=Limits(calls_per_address=9))
    api, server = Api(url), demo.races
    server.readers.clock = lambda: now[0]
    api.post({"data": ["slowly, unread", None, 1000]})  # half a minute, if nothing ends it
    api.post({"data": ["Unread"]})
    until(lambda: backend.running == 1 and len(server.line.api_calls()) == 2)
    now[0] = UNREAD_SECONDS + 1
    assert api.race({"data": ["Read"]})[0]["prompt"] == "Read"
    assert [a.prompt for a in backend.asked] == ["slowly, unread", "Read"]
    assert backend.running == 0 and not server.line.api_calls()


def test_a_race_has_a_deadline(serve, assets):
    backend = FakeBackend(pace=0.05)
    url, _ = serve(backend, assets, limits=Limits(race_seconds=0.2))
    events = Api(url).race({"data": ["slowly"]})
    assert events[-1]["kind"] == "done" and events[-1]["stopped"] is True


def test_calls_of_the_endpoint_are_counted_before_a_visitors_race(page):
    api, backend, demo = page
    api.post({"data": ["wait here"]})
    until(lambda: backend.running == 1)
    client = {"client": type("Client", (), {"host": "127.0.0.1"}), "session_hash": "visitor"}
    from specdemo.ui.jobs import RaceForm

    form = RaceForm("Hi", "block", "fake", "match", 16, 0, 1, 0, {})
    message = demo.races.enter(type("Request", (), client), form)
    assert message["text"].startswith("One race is ahead of yours")
    backend.gate.set()


def test_pages_that_were_left_are_forgotten(page):
    """Gradio's record of a page has 0.2 MB, and every call may name a new one."""
    _, _, demo = page
    holder = demo.app.state_holder
    assert holder.capacity == SESSIONS
    holder.capacity = 3
    assert [holder[f"s{k}"] for k in range(8)] and len(holder.session_data) == 3


def test_the_clients_address_is_the_proxys_word_only_behind_a_proxy():
    def request(host, forwarded=""):
        client = type("Client", (), {"host": host})
        return type("Request", (), {"client": client, "headers": {"x-forwarded-for": forwarded}})

    forged = request("10.0.0.1", "8.8.8.8, 1.1.1.1, 10.2.3.4")
    assert address_of(forged) == "10.0.0.1"
    assert address_of(forged, behind_proxy=True) == "1.1.1.1", "the last public one"
    assert address_of(request("10.0.0.1", "nonsense, "), behind_proxy=True) == "10.0.0.1"
    assert address_of(request("2001:4860:4860::8888")) == "2001:4860:4860::/64"
    assert address_of(request("::ffff:1.1.1.1")) == address_of(request("1.1.1.1"))
    assert (
        Limits.from_env({"SPACE_ID": "a/b"}).behind_proxy and not Limits.from_env({}).behind_proxy
    )


def test_readers_know_which_answer_is_read():
    now = [0.0]
    readers = Readers(lambda: now[0])
    assert not readers.unread("never joined")
    readers.joined("session", "event")
    now[0] = UNREAD_SECONDS + 1
    assert readers.unread("session")
    assert readers.opened("event") == "session" and not readers.unread("session")
    readers.left("session")
    assert not readers.unread("session"), "a reader may come back"
    now[0] *= 3
    assert readers.unread("session")
    for k in range(5000):
        readers.joined(f"s{k}", f"e{k}")
    assert len(readers.last) <= 2000 and len(readers.sessions) <= 2000


def test_a_stream_that_does_not_move_is_not_read():
    """Its client holds the connection open and takes nothing, so that sending never ends."""
    now = [0.0]
    readers = Readers(lambda: now[0])
    readers.joined("session", "event")
    seen = []

    async def stream(scope, receive, send):
        await send({"type": "http.response.body", "body": b"data: {}", "more_body": True})
        now[0] += 2 * UNREAD_SECONDS
        seen.append(readers.unread("session"))  # as long as a round takes
        await send({"type": "http.response.body", "body": b"data: {}", "more_body": True})

    async def client(message):
        if seen:  # what was sent first is read, the rest never
            now[0] += UNREAD_SECONDS + 1
            seen.append(readers.unread("session"))

    path = f"/{API}/call/race/event"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    call = HttpLimits(stream, readers, 1000)(scope, None, client)
    with ThreadPoolExecutor(1) as other:  # this thread may have Playwright's event loop
        other.submit(asyncio.run, call).result()
    assert seen == [False, True]
    assert not readers.sending and not readers.streams


def test_a_link_to_the_page_is_previewed_under_its_own_name(served):
    html = httpx.get(served).text
    assert html.count("og:title") == 1 and 'property="og:title" content="SpecDemo"' in html
    assert "Gradio" not in html.split("<style>")[0] and "{url}" not in html
