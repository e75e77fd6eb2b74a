"""The connection to a serving engine: bounded, patient for so long, its own for each request, and
nobody's else.
"""

from __future__ import annotations

import json

import pytest
from scripted_engine import ScriptedEngine, captured, plain_vllm
from test_attached import run, written
from test_attached_failures import COUNTED, DRAFT, broken, ended

from specdemo.attached import wire
from specdemo.attached.race import attach, race
from specdemo.errors import UserError
from specdemo.models.served import Served
from specdemo.request import Request


def test_each_request_has_a_connection_of_its_own_and_no_conversation():
    """llama.cpp cuts a connection that idles, and goes on behind a closed one that named a
    conversation.
    """
    first = ScriptedEngine("llama.cpp", DRAFT, speculates=False)
    second = ScriptedEngine("llama.cpp", DRAFT)
    run("llama.cpp", engines=(first, second), lanes="spec")
    ports = [port for port, _ in second.seen]
    assert len(ports) == len(set(ports)) > 3
    for _, headers in second.seen:
        assert headers["connection"] == "close" and "x-conversation-id" not in headers


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with ScriptedEngine("vllm") as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        run("vllm", plain_vllm(), captured("vllm_0.32.0_draft_chat"))
        assert not proxy.seen


def test_an_answer_that_does_not_begin(monkeypatch):
    monkeypatch.setattr(wire, "FIRST", 0.3)
    events, sentence = broken(["hold"])
    assert "has sent nothing for" in sentence and written(events)["ar"]


def test_an_endless_answer(monkeypatch):
    """No line is long, all together are."""
    monkeypatch.setattr(wire, "MAX_ANSWER", 60_000)
    events, sentence = broken([*DRAFT[:9], *[DRAFT[8]] * 400])
    assert "far more than was asked for" in sentence and written(events)["spec"]


def test_a_page_of_facts_that_is_endless(monkeypatch):
    monkeypatch.setattr(wire, "MAX_REPLY", 10_000)
    with ScriptedEngine("vllm", speculates=False) as first, ScriptedEngine("vllm") as second:
        second.replies["/metrics"] = 200, "x" * 20_000
        with pytest.raises(UserError, match="speculative endpoint sent far more"):
            attach("there", Served("vllm", first.url, second.url))


@pytest.mark.parametrize(
    "reply, words",
    [((503, {"error": {"code": 503, "message": "Loading model"}}), "(Loading model)"),
     ((200, "<html>"), "names no model"), ((200, {"data": 7}), "names no model"),
     ((404, "not here"), "(status 404)")],
)  # fmt: skip
def test_an_endpoint_that_is_not_ready_or_is_something_else(reply, words):
    with ScriptedEngine("llama.cpp", speculates=False) as first:
        first.replies["/v1/models"] = reply
        with pytest.raises(UserError) as error:
            attach("there", Served("llama.cpp", first.url, first.url + "/other"))
    assert words in str(error.value) and "127.0.0.1" not in str(error.value)


def test_no_acceptance_by_position_while_others_are_served(monkeypatch):
    """Its counters fit by chance, but it says that somebody else is being answered."""
    monkeypatch.setattr("specdemo.attached.compare.SETTLE_SECONDS", 0.2)
    second = ScriptedEngine("vllm", captured("vllm_0.32.0_dflash_random_chat"))
    start = second.counters[0]
    second.counters = [start, start | {"running": 1}, COUNTED]
    first = ScriptedEngine("vllm", plain_vllm(), speculates=False)
    result = run("vllm", engines=(first, second))[-1].result
    assert result["served"]["by_position"] is None and "served others" in result["note"]


def test_what_an_engine_says_of_itself_is_not_passed_on(monkeypatch):
    """Its address, in any form, its host and the key that it was given, in a refusal's words."""
    monkeypatch.setenv("THE_KEY", "sk-never-shown")
    with ScriptedEngine("vllm", plain_vllm(), speculates=False) as first:
        with ScriptedEngine("vllm", status=400) as second:
            port = second.server.server_port
            said = (
                f"bad request to http://127.0.0.1:{port}/v1 (127.0.0.1:{port}, LOCALHOST:{port},"
                f" https://engine.example:{port}/x, http://user:pw@engine.example/) with"
                " Bearer sk-never-shown"
            )
            second.lines = [json.dumps({"error": {"message": said, "code": 400}})]
            served = Served("vllm", first.url, second.url, key_env="THE_KEY")
            _, sentence = ended(race(attach("there", served), Request("hi")))
    assert "bad request to … (" in sentence
    words = ("127.0.0.1", "localhost", "engine.example", "sk-never-shown", str(port), "user:pw")
    assert not [word for word in words if word in sentence.lower()]
