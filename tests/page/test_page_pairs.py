"""Pairs that are not on this computer, and the visitor whose share of a GPU a race uses."""

from __future__ import annotations

import json
import re
import shutil
import threading
from types import SimpleNamespace

import gradio as gr
import httpx
import pytest
from fake_backend import METHODS, PAIRS, FakeBackend
from fake_race import fake_events
from gradio.context import LocalContext

from specdemo.drafters import METHODS as REAL_METHODS
from specdemo.errors import UserError
from specdemo.ui import server as server_module
from specdemo.ui.backend import Backend, ZeroGpuBackend
from specdemo.ui.controls import Limits
from specdemo.ui.engines import Engines
from specdemo.ui.jobs import RaceForm
from specdemo.ui.messages import Ended
from specdemo.ui.page import build_demo
from specdemo.ui.server import Server

TITLES = {name: pair.title for name, pair in PAIRS.items()}


@pytest.fixture
def server(tmp_path):
    """A server with the pair “fake” in memory; the pair “slow” is not on this computer."""
    backend = FakeBackend()
    backend.absent = {"slow", TITLES["slow"]}
    server = Server(backend, METHODS, PAIRS, Limits(), tmp_path)
    assert ended(server, "fake")
    return server


def job_of(server, pair):
    form = RaceForm("Hi", "block", pair, "match", 8, 0, 1, 0, {})
    return server.make_job(form)


def ended(server, pair):
    *_, last = server.messages(job_of(server, pair), threading.Event())
    return isinstance(last, Ended) and last.total > 0


def test_a_pair_that_is_not_there_leaves_the_other_in_memory(server):
    with pytest.raises(UserError, match="slow could not be fetched"):
        ended(server, "slow")
    assert server.engines.ready("fake") and server.engines.free_for("fake")
    assert list(server.loading("slow", "block")) == [
        "Another pair is not on this computer; **Run** fetches it, which needs network access."
    ]
    assert list(server.loading("fake", "block")) == ["Model loaded."]
    assert ended(server, "fake") and server.engines.ready("fake"), "nothing is loaded again"


def test_only_the_pair_in_memory_can_be_measured_again(server):
    assert list(server.measure_again("slow")) == [
        "This pair is not in memory yet; press **Run** first."
    ]
    assert list(server.measure_again("fake"))[-1] == "Measured fake again."


def test_a_pair_that_is_there_takes_the_others_place(server):
    server.backend.absent.clear()
    assert list(server.loading("slow", "block")) == [
        "Another pair is in memory; this one is loaded when you press **Run**."
    ]
    assert ended(server, "slow") and server.engines.ready("slow")


def test_a_long_fetch_gives_its_turn_back(server, monkeypatch):
    """Others race meanwhile, and the pair is there when it has come."""
    arrived = threading.Event()
    monkeypatch.setattr(server.engines, "fetch_files", lambda pair, progress: arrived.wait(60))
    monkeypatch.setattr(server_module, "FETCH_TURN", 0.0)
    with pytest.raises(UserError, match="is being fetched; press Run again"):
        ended(server, "slow")
    assert ended(server, "fake")
    arrived.set()
    assert server.engines.fetches["slow"].done.wait(10)
    assert ended(server, "slow")


def test_pairs_that_are_not_there_are_marked(server, assets):
    assert server.pair_choices() == [
        (TITLES["fake"], "fake"),
        (f"{TITLES['slow']} (not on this computer)", "slow"),
    ]
    demo = build_demo(server.backend, METHODS, None, Limits(every_pair=False), assets)
    assert list(demo.races.pairs) == ["smollm2-135m"], "a public Space offers what it has"


@pytest.fixture
def name_pair(tmp_path, monkeypatch):
    """Writes models.yaml with one pair, “mine”, and returns it."""
    from specdemo.models.pairs import get_pair

    def write(target, drafters="{}"):
        models = tmp_path / "models.yaml"
        entry = f"{{title: T, license: L, size: S, target: {target}, drafters: {drafters}}}"
        models.write_text(f"pairs:\n  mine: {entry}\n")
        monkeypatch.setenv("SPECDEMO_MODELS", str(models))
        return get_pair("mine")

    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    return write


def test_what_is_missing_of_a_pair_is_said_before_anything_is_fetched(name_pair, tmp_path):
    """The page's status says what Run will do, for each method."""
    pair = name_pair("{path: nowhere}", "{block: none}")
    server = Server(Backend(), REAL_METHODS, {"mine": pair}, Limits(), tmp_path)
    assert Backend().missing(pair) == "not on this computer, a drafter is missing"
    for method, sentence in (
        ("block", "drafter folder .*none has no config.json"),
        ("lookup", "target of mine is not in .*nowhere"),
    ):
        (said,) = server.loading("mine", method)
        assert re.search(sentence, said)
    with pytest.raises(UserError, match="drafter folder .*none has no config.json"):
        job_of(server, "mine")
    with pytest.raises(UserError, match="of mine cannot be read: there is no folder .*nowhere"):
        Backend().fetch("mine", lambda message, fraction: None)


def test_a_pair_to_be_fetched_whose_drafter_is_missing_is_not_promised(name_pair, tmp_path):
    pair = name_pair("{hub: a/b}")
    pairs = {"first": name_pair("{hub: c/d}"), "mine": pair}
    server = Server(Backend(), REAL_METHODS, pairs, Limits(), tmp_path)
    assert Backend().missing(pair) == "not on this computer, no drafter"
    (said,) = server.loading("mine", "block")
    assert "has no diffusion drafter here" in said
    with pytest.raises(UserError) as refused:
        job_of(server, "mine")
    assert str(refused.value) == said, "status and Run say the same"
    assert "fetches it" in next(server.loading("mine", "lookup"))


def test_what_was_chosen_before_is_told_no_more(server):
    """A page that has chosen something else meanwhile."""
    server.backend.weights.clear()
    server.engines.pair = server.engines.engine = None
    first = server.loading("fake", "block", "a page")
    assert "…" in next(first) or "%" in next(first)
    (said,) = server.loading("slow", "block", "a page")
    assert "not on this computer" in said
    server.backend.weights.set()
    assert list(first) == []


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda folder: rewrite(folder, architectures=["MambaForCausalLM"], model_type="mamba"),
            "recurrent state",
        ),
        (lambda folder: cut_short(folder), "damaged or incomplete"),
        (lambda folder: (folder / "model.safetensors").unlink(), "damaged or incomplete"),
        (lambda folder: (folder / "chat_template.jinja").write_text("{{ oh() }}"), "template"),
    ],
    ids=["kind", "cut short", "no weights", "template"],
)
def test_a_target_that_cannot_run_leaves_the_other_in_memory(
    name_pair, target_folder, tmp_path, damage, sentence
):
    shutil.copytree(target_folder, tmp_path / "copy")
    backend = Backend()
    name_pair("{path: copy}")
    backend.fetch("mine", lambda message, fraction: None)  # as it is, it can
    damage(tmp_path / "copy")
    engines = Engines(lambda pair, progress: "engine", backend.fetch)
    assert list(engines.wait("other")) and engines.ready("other")
    with pytest.raises(UserError, match=sentence):
        list(engines.wait("mine"))
    assert engines.ready("other")


def rewrite(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def cut_short(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def test_a_link_names_the_pair_whose_state_is_told(serve, assets):
    """Not the one that the dropdown shows until the link has filled it in."""
    backend = FakeBackend()
    backend.absent = {"slow", TITLES["slow"]}
    url, demo = serve(backend, assets)
    listener = next(fn for fn in demo.fns.values() if fn.name == "on_load_model")
    body = {"data": [], "fn_index": listener._id, "session_hash": "s"}
    httpx.post(f"{url}gradio_api/queue/join?pair=slow", json=body)
    with httpx.stream("GET", f"{url}gradio_api/queue/data?session_hash=s", timeout=20) as stream:
        assert "Another pair is not on this computer" in "".join(stream.iter_text())


# -- ZeroGPU ---------------------------------------------------------------------------------------


class FakeSpaces(ZeroGpuBackend):
    """Calls its stream as the decorator of ``spaces`` 0.51.3 does: the visitor is the request in
    Gradio's context where the generator is first asked for an event.
    """

    def __init__(self, quota: str = ""):
        super().__init__(self.decorated)
        self.quota, self.visitors = quota, []

    def load(self, pair, progress):
        return pair

    def fetch(self, pair, progress):
        pass

    def refuse(self, pair):
        return ""

    def missing(self, pair):
        return ""

    def decorated(self, pair, request):
        visitor = LocalContext.request.get(None)
        self.visitors.append(visitor and visitor.headers.get("x-ip-token"))
        if self.quota:
            raise gr.Error(self.quota)
        yield from (event.to_dict() for event in fake_events(tokens=8))


def call_race(url, token):
    base = f"{url}gradio_api/call/race"
    reply = httpx.post(base, json={"data": ["Hi"]}, headers={"x-ip-token": token})
    with httpx.stream("GET", f"{base}/{reply.json()['event_id']}", timeout=20) as stream:
        return "".join(stream.iter_text())


def test_a_race_on_zerogpu_uses_its_visitors_share(serve, assets):
    backend = FakeSpaces()
    url, _ = serve(backend, assets)
    for token in ("anna", "bert"):
        assert '\\"done\\"' in call_race(url, token)
    assert backend.visitors == ["anna", "bert"]


QUOTA = 'You have exceeded your GPU quota (60s requested vs. 0s left). <a href="x">Log in</a>'


def test_a_used_up_share_of_a_gpu_is_said_in_its_own_words(serve, assets, tmp_path, capfd):
    url, _ = serve(FakeSpaces(QUOTA), assets)
    data = call_race(url, "anna").split("data: ")[-1]
    assert json.loads(data)["error"] == (
        "You have exceeded your GPU quota (60s requested vs. 0s left). Log in"
    )
    assert capfd.readouterr().err == ""
    server = Server(FakeSpaces(QUOTA), METHODS, PAIRS, Limits(), tmp_path)
    visitor = SimpleNamespace(session_hash="s", client=None, headers={})
    server.enter(visitor, RaceForm("Hi", "block", "fake", "match", 8, 0, 1, 0, {}))
    *_, last = server.run(visitor)
    assert last["type"] == "error" and last["text"].startswith("You have exceeded your GPU quota")
    assert not server.queue.tickets
