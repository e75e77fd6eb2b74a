"""A dtype that is chosen beside the pair, and pairs of one's own: what the page takes from whom."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_backend import METHODS, PAIRS, FakeBackend

from specdemo.drafters import METHODS as REAL_METHODS
from specdemo.errors import UserError
from specdemo.models import needs
from specdemo.ui.backend import Backend
from specdemo.ui.choice import add_own, engine_key, split_key
from specdemo.ui.controls import Limits
from specdemo.ui.engines import Engines
from specdemo.ui.jobs import RaceForm
from specdemo.ui.messages import Ended
from specdemo.ui.page import build_demo
from specdemo.ui.server import Server

SPACE = Limits.from_env({"SPACE_ID": "a/b"})
USUAL = "as its chat template says"


def visitor(host="127.0.0.1", name="localhost:7860", **headers):
    client = SimpleNamespace(host=host)
    return SimpleNamespace(client=client, headers={"host": name, **headers}, session_hash="s")


@pytest.fixture
def server(tmp_path):
    return Server(FakeBackend(), METHODS, PAIRS, Limits(), tmp_path)


def form(pair="fake", dtype=""):
    return RaceForm("Hi", "block", pair, "match", 8, 0, 1, 0, {}, dtype)


def raced(server, asked):
    *_, last = server.messages(server.make_job(asked), threading.Event())
    return isinstance(last, Ended) and last.total > 0


def test_a_dtype_is_part_of_what_is_in_memory(server):
    assert split_key(engine_key("a-b.c", "int4")) == ("a-b.c", "int4")
    assert split_key(engine_key("a-b.c")) == ("a-b.c", None)
    assert raced(server, form()) and server.engines.ready("fake")
    (said,) = server.loading("fake", "block", "", "int4")
    assert said.startswith("This pair is in memory in another dtype")
    assert raced(server, form(dtype="int4"))
    assert server.engines.ready("fake:int4") and not server.engines.ready("fake")
    assert list(server.loading("fake", "block", "", "int4")) == ["Model loaded."]


@pytest.mark.parametrize("dtype", ["fp64", "4bit", 7, ["int4"]])
def test_a_dtype_that_the_pair_does_not_have_is_refused(server, dtype):
    with pytest.raises(UserError, match="has no dtype .*; choose bf16, int4"):
        server.make_job(form(dtype=dtype))
    (said,) = server.loading("fake", "block", "", dtype)
    assert "has no dtype" in said


def test_a_public_space_loads_what_its_owner_chose(tmp_path):
    server = Server(FakeBackend(), METHODS, PAIRS, SPACE, tmp_path)
    assert raced(server, form())
    with pytest.raises(UserError, match="in one dtype only"):
        server.make_job(form(dtype="int4"))
    with pytest.raises(UserError, match="only for a browser on this machine"):
        add_own(server, visitor(), "fake", "mine", "", USUAL)
    assert list(server.pairs) == ["fake", "slow"]


def parts(demo):
    """What each control of the settings shows, by its id."""
    return {block.elem_id: block for block in demo.blocks.values() if block.elem_id}


def test_a_public_space_shows_no_such_control(assets):
    for limits, shown in ((Limits(), True), (SPACE, False)):
        found = parts(build_demo(FakeBackend(), METHODS, PAIRS, limits, assets))
        assert [found[name].visible for name in ("dtype", "fits", "own-pair")] == [shown] * 3
    shared = replace(Limits(), own_models=False)
    found = parts(build_demo(FakeBackend(), METHODS, PAIRS, shared, assets))
    assert found["dtype"].visible and not found["own-pair"].visible


@pytest.mark.parametrize(
    "who",
    [
        visitor(host="192.168.1.7"),
        visitor(name="abc.gradio.live"),
        visitor(name="evil.example:7860"),
        visitor(**{"x-forwarded-for": "8.8.8.8"}),
        SimpleNamespace(client=None, headers={"host": "localhost"}),
    ],
    ids=["network", "tunnel", "rebound name", "proxy", "nobody"],
)
def test_only_a_browser_on_this_machine_names_models(server, who):
    with pytest.raises(UserError, match="only for a browser on this machine"):
        add_own(server, who, "fake", "mine", "", USUAL)


def test_a_model_of_ones_own_is_one_more_pair(server):
    key = add_own(server, visitor(), "fake", "mine", "", "on")
    assert key == "own-mine" and server.pairs[key].thinking is True
    assert add_own(server, visitor(), "fake", "mine", "", "on") == key, "the same again"
    assert add_own(server, visitor(), "fake", "mine", "", "off") == "own-mine-2"
    assert ("mine", key) in server.pair_choices() and raced(server, form(key))
    for target, thinking, words in (
        ("nowhere", USUAL, "no target in nowhere"),
        (" ", USUAL, "Name a target or a drafter"),
        ("mine", "perhaps", "Thinking is one of"),
    ):
        with pytest.raises(UserError, match=words):
            add_own(server, visitor(), "fake", target, "", thinking)


# -- the real backend ------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, target_folder, monkeypatch):
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    shutil.copytree(target_folder, tmp_path / "target")
    return tmp_path / "target"


def test_a_target_of_ones_own_is_looked_at_before_it_is_taken(own, tmp_path):
    server = Server(Backend(), REAL_METHODS, {}, Limits(), tmp_path)
    key = add_own(server, visitor(), "smollm2-135m", str(own), "", USUAL)
    assert key == "own-target" and server.backend.pair(key)[0].target[0]["path"] == str(own)
    assert server.backend.pair(f"{key}:fp32")[1] == "fp32"
    dtypes, lines = server.backend.fits(server.pairs[key])
    assert dtypes[:2] == ["bf16", "fp32"] and all("fits: about" in line for line in lines)
    (own / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(UserError) as refused:
        add_own(server, visitor(), "smollm2-135m", str(own), "", USUAL)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="is not in .*nothing"):
        add_own(server, visitor(), "smollm2-135m", str(tmp_path / "nothing"), "", USUAL)


def test_a_thinking_mode_that_no_template_knows_is_refused(own, tmp_path):
    server = Server(Backend(), REAL_METHODS, {}, Limits(), tmp_path)
    with pytest.raises(UserError, match="thinking mode cannot be turned on"):
        add_own(server, visitor(), "smollm2-135m", str(own), "", "on")
    template = "{{ messages[0].content }}{% if enable_thinking %}<think>{% endif %}"
    (own / "chat_template.jinja").write_text(template)
    key = add_own(server, visitor(), "smollm2-135m", str(own), "", "on")
    assert server.pairs[key].thinking is True


def test_another_tokenizer_is_told_before_anything_is_loaded(own, tmp_path):
    from tiny_models import make_byte_tokenizer

    drafter = tmp_path / "drafter"
    shutil.copytree(own, drafter)
    server = Server(Backend(), REAL_METHODS, {}, Limits(), tmp_path)
    key = add_own(server, visitor(), "smollm2-135m", str(own), str(drafter), USUAL)
    assert set(server.pairs[key].drafters) == {"ar"}, "its kind is found from its files"
    make_byte_tokenizer("{{ messages[0].content }}").save_pretrained(drafter)
    with pytest.raises(UserError, match="The tokenizer of .* differs from the target's"):
        add_own(server, visitor(), "smollm2-135m", str(own), str(drafter), USUAL)


def test_a_pair_that_cannot_fit_leaves_the_other_in_memory(monkeypatch):
    """Nothing is fetched for it either."""
    monkeypatch.setattr("specdemo.models.fetch._from_hub", lambda *a: pytest.fail("fetched"))
    small = needs.Memory("this machine's memory", "cpu", 10**10, 10**10)
    monkeypatch.setattr(needs, "machine_memory", lambda: [small])
    engines = Engines(lambda pair, progress: "engine", Backend().fetch)
    assert list(engines.wait("other")) and engines.ready("other")
    for key, words in (
        ("qwen2.5-32b-dream", "does not fit: about .*; choose a smaller pair"),
        ("qwen3-8b:4bit", "needs bitsandbytes|does not fit"),
    ):
        with pytest.raises(UserError, match=words):
            list(engines.wait(key))
        assert engines.ready("other")
