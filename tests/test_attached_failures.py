"""What can go wrong with a serving engine is one sentence; what had come is kept, nothing hangs,
and no sentence or event holds an address, a host or a key.
"""

from __future__ import annotations

import json
import threading

import pytest
from scripted_engine import CAPTURES, ScriptedEngine, captured, plain_vllm
from test_attached import run, written

from specdemo.attached import wire
from specdemo.attached.race import attach, race
from specdemo.errors import UserError
from specdemo.models.served import Served, attach_allowed, checked_address
from specdemo.request import Request, Sampling
from specdemo.traces import dump_trace, parse_trace

pytestmark = pytest.mark.slow

PLAIN = captured("llamacpp_b11549_plain_rep")
DRAFT = captured("llamacpp_b11549_draft_native")
REFUSALS = [name for name, capture in CAPTURES.items() if capture["status"] != 200]


def ended(events_of, kept=None):
    """(events that had come, sentence) of a race that an endpoint ends."""
    events = []
    with pytest.raises(UserError) as error:
        for event in events_of:
            events.append(event)
    sentence = str(error.value)
    assert "127.0.0.1" not in sentence and "http" not in sentence and sentence.endswith(".")
    assert "\n" not in sentence and len(sentence) < 500
    if events:
        parse_trace(dump_trace(events))
    return events, sentence


def broken(lines, kind="llama.cpp", plain=PLAIN, request=None, **server):
    """Events and sentence of a race whose speculative endpoint plays ``lines``."""
    with ScriptedEngine(kind, plain, speculates=False) as first:
        with ScriptedEngine(kind, lines, **server) as second:
            served = Served(kind, first.url, second.url, model="m")
            attached = attach("there", served)
            return ended(race(attached, request or Request("hi", max_new_tokens=96)))


def test_a_closed_port():
    with ScriptedEngine("vllm", speculates=False) as first, ScriptedEngine("vllm") as second:
        gone = second.url
    with ScriptedEngine("vllm", speculates=False) as first:
        with pytest.raises(UserError, match="speculative endpoint does not answer; start it"):
            attach("there", Served("vllm", first.url, gone))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_recorded_refusal(name):
    capture = CAPTURES[name]
    kind = "vllm" if "vllm" in name else "llama.cpp"
    plain = plain_vllm() if kind == "vllm" else PLAIN
    events, sentence = broken(captured(name), kind, plain, status=capture["status"])
    assert written(events)["ar"], "the plain lane had come"
    if "auth" in name:
        assert "does not accept the key" in sentence
    else:
        words = json.loads(captured(name)[0])["error"]["message"].rstrip(".")[:60]
        assert " ".join(words.split()) in sentence


def test_an_error_inside_a_stream_with_status_200():
    _, sentence = broken(captured("vllm_0.32.0_err_minp"), "vllm", plain_vllm())
    assert "not yet supported with speculative decoding" in sentence
    late = [*DRAFT[:9], 'data: {"error":{"code":500,"message":"out of memory"}}']
    events, sentence = broken(late)
    assert "out of memory" in sentence and written(events)["spec"]


def test_a_detail_of_unknown_fields():
    detail = json.dumps({"detail": [{"msg": "extra fields", "loc": ["body"]}]})
    _, sentence = broken([detail], status=422)
    assert "(extra fields)" in sentence


@pytest.mark.parametrize("end", ["cut", "silent end"])
def test_a_connection_that_ends_in_the_middle_of_an_answer(end):
    events, sentence = broken([*DRAFT[:9], *(["cut"] if end == "cut" else [])])
    assert "what had come is kept" in sentence
    texts = written(events)
    assert texts["spec"] and DRAFT and len(texts["ar"]) > len(texts["spec"])
    assert events[-1].kind != "done", "there are no figures"


def test_a_plain_endpoint_that_breaks_asks_the_other_nothing():
    with ScriptedEngine("llama.cpp", [*PLAIN[:9], "cut"], speculates=False) as first:
        with ScriptedEngine("llama.cpp", DRAFT) as second:
            attached = attach("there", Served("llama.cpp", first.url, second.url))
            events, _ = ended(race(attached, Request("hi")))
            assert written(events)["ar"] and not second.bodies


def test_a_stall_ends_after_a_while(monkeypatch):
    monkeypatch.setattr(wire, "NEXT", 0.3)
    events, sentence = broken([*DRAFT[:9], "hold"])
    assert "has sent nothing for" in sentence and written(events)["spec"]


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_an_endpoint_that_takes_the_connection_and_says_nothing(monkeypatch, path):
    monkeypatch.setattr(wire, "CONNECT", 0.2)
    monkeypatch.setattr(wire, "REPLY", 1.0)
    with ScriptedEngine("vllm", speculates=False) as first, ScriptedEngine("vllm") as second:
        first.replies[path] = "hold"
        with pytest.raises(UserError, match="plain endpoint did not answer in time"):
            attach("there", Served("vllm", first.url, second.url))
        assert first.gone.wait(5)


def test_a_line_without_end(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 20_000)
    events, sentence = broken([*DRAFT[:9], "data: " + "x" * 30_000])
    assert "far more than was asked for" in sentence and written(events)["spec"]


@pytest.mark.parametrize("line", ["data: {nonsense", "<html>", "data: [1]", '{"choices": []}'])
def test_what_is_no_event(line):
    events, sentence = broken([*DRAFT[:9], line])
    assert "“kind”" in sentence and written(events)["spec"]


def test_a_redirect_is_not_followed():
    with ScriptedEngine("vllm") as other:
        _, sentence = broken(["moved"], status=307, headers={"Location": f"{other.url}/x"})
        assert "redirect" in sentence and not other.bodies


def test_hostile_numbers_and_names_do_no_harm():
    wild = [
        'data: {"content":"a","tokens":[-7],"timings":{"predicted_n":1,"predicted_ms":NaN}}',
        'data: {"content":"b","tokens":[1e99],"timings":{"predicted_n":2,"predicted_ms":1e999}}',
        'data: {"content":7,"tokens":"x","timings":{"predicted_n":3,"draft_n":-4}}',
        'data: {"content":"\\ud800","tokens":[true],"timings":[1]}',
        'data: {"content":"","stop":true,"stop_type":7,"timings":{}}',
    ]
    events = run("llama.cpp", PLAIN, wild)
    parse_trace(dump_trace(events))
    assert events[-1].kind == "done"


def test_the_plain_endpoint_speculates_too():
    for kind in ("llama.cpp", "vllm", "sglang"):
        with ScriptedEngine(kind) as first, ScriptedEngine(kind) as second:
            with pytest.raises(UserError, match="plain endpoint speculates too"):
                attach("there", Served(kind, first.url, second.url))
    with ScriptedEngine("llama.cpp", DRAFT, speculates=False) as first:  # its stream tells it
        with ScriptedEngine("llama.cpp", DRAFT) as second:
            attached = attach("there", Served("llama.cpp", first.url, second.url))
            _, sentence = ended(race(attached, Request("hi")))
            assert "speculates too" in sentence


def test_the_speculative_endpoint_does_not():
    for kind in ("llama.cpp", "vllm", "sglang"):
        with ScriptedEngine(kind, speculates=False) as first:
            with ScriptedEngine(kind, speculates=False) as second:
                with pytest.raises(UserError, match="does not speculate; start it"):
                    attach("there", Served(kind, first.url, second.url))


def test_another_model_and_another_key(monkeypatch):
    with ScriptedEngine("vllm", speculates=False, key="one") as first:
        with ScriptedEngine("vllm", key="one") as second:
            where = dict(kind="vllm", plain=first.url, speculative=second.url)
            with pytest.raises(UserError, match="does not accept the key; set the variable"):
                attach("there", Served(**where))
            monkeypatch.delenv("THE_KEY", raising=False)
            with pytest.raises(UserError, match="THE_KEY, which holds the engine's key, is not"):
                attach("there", Served(**where, key_env="THE_KEY"))
            monkeypatch.setenv("THE_KEY", "one")
            attach("there", Served(**where, key_env="THE_KEY"))
            with pytest.raises(UserError, match="does not serve “other”"):
                attach("there", Served(**where, key_env="THE_KEY", model="other"))


@pytest.mark.parametrize(
    "what, words",
    [(dict(rule="ratio", method="specdiff"), "the rule “ratio” cannot be asked for"),
     (dict(check="exact"), "shows no logits to check")],
)  # fmt: skip
def test_requests_that_no_engine_takes(what, words):
    with pytest.raises(UserError, match=words):
        run("llama.cpp", PLAIN, DRAFT, **what)


def test_options_that_an_engine_does_not_take():
    sampling = Sampling(temperature=1.0, min_p=0.1)
    stream = captured("vllm_0.32.0_dflash_random_chat")
    request = Request("hi", sampling=sampling)
    _, sentence = broken(stream, "vllm", stream, request)
    assert "does not take min_p" in sentence


def test_stop_closes_the_connection_at_once():
    cancel = threading.Event()
    with ScriptedEngine("llama.cpp", [*PLAIN[:9], "hold"], speculates=False) as first:
        with ScriptedEngine("llama.cpp", DRAFT) as second:
            attached = attach("there", Served("llama.cpp", first.url, second.url))
            threading.Thread(target=lambda: first.held.wait(10) and cancel.set()).start()
            events = list(race(attached, Request("hi"), cancel))
            assert first.gone.wait(1)
            assert events[-1].stopped and not second.bodies
            assert events[-1].result["spec"] is None


def test_a_closed_tab_closes_the_connection():
    with ScriptedEngine("llama.cpp", PLAIN, speculates=False) as first:
        with ScriptedEngine("llama.cpp", [*DRAFT[:9], "hold"]) as second:
            attached = attach("there", Served("llama.cpp", first.url, second.url))
            events = race(attached, Request("hi"))
            while next(events).kind != "verify":
                pass
            events.close()
            assert second.gone.wait(1)


def test_each_request_has_a_salt_of_its_own():
    stream = captured("vllm_0.32.0_dflash_random_chat")
    engines = ScriptedEngine("vllm", plain_vllm(), speculates=False), ScriptedEngine("vllm", stream)
    run("vllm", engines=engines)
    bodies = [engine.bodies[0] for engine in engines]
    assert bodies[0]["cache_salt"] != bodies[1]["cache_salt"]


COUNTED = dict(running=0, drafts=31, drafted=217, accepted=0, first=0)  # of the recorded answer


@pytest.mark.parametrize(
    "after, before, words",
    [(COUNTED, {}, None), (COUNTED | {"drafted": 300, "drafts": 50}, {}, "served others"),
     (COUNTED, dict(drafts=90, drafted=900), "started again")],
)  # fmt: skip
def test_counters_before_and_after(monkeypatch, after, before, words):
    monkeypatch.setattr("specdemo.attached.compare.SETTLE_SECONDS", 0.2)
    stream = captured("vllm_0.32.0_dflash_random_chat")
    second = ScriptedEngine("vllm", stream)
    start = second.counters[0] | before
    second.counters = [start, start, after]
    first = ScriptedEngine("vllm", plain_vllm(), speculates=False)
    result = run("vllm", engines=(first, second))[-1].result
    if words is None:
        assert result["served"]["by_position"] == [0.0]
    else:
        assert result["served"]["by_position"] is None and words in result["note"]


def test_a_missing_usage_leaves_the_totals_out():
    lines = [line for line in captured("vllm_0.32.0_draft_chat") if '"usage"' not in line]
    result = run("vllm", plain_vllm(), lines)[-1].result
    assert result["served"]["rounds"] == "inferred" and result["served"]["drafted"] is None


def test_usage_that_counts_passes_is_no_token_count():
    plain = captured("transformers_5.24.0_plain_rep")
    lookup = captured("transformers_5.24.0_lookup_rep")
    done = run("transformers", plain, lookup)[-1]
    assert done.result["spec"]["rounds"] == 25 and done.result["spec"]["tokens_per_second"] == 0
    if done.result["served"]["comparison"] == "text":
        ar, spec = done.result["ar"], done.result["spec"]
        assert done.result["speedup"] == pytest.approx(ar["seconds"] / spec["seconds"])


@pytest.mark.parametrize(
    "address",
    ["ftp://a", "http://", "http://user:x@a", "http://a?b=c", "http://a#b", "a:80",
     "http://a b", "http://a:99999", "file:///etc/passwd"],
)  # fmt: skip
def test_addresses_that_are_none(address):
    with pytest.raises(ValueError):
        checked_address(address)


def test_addresses_as_people_write_them():
    assert checked_address(" http://10.0.0.5:8000/v1/ ") == "http://10.0.0.5:8000"
    assert checked_address("https://engine.example/a/") == "https://engine.example/a"
    assert attach_allowed({}) and not attach_allowed({"SPACE_ID": "x"})
    assert attach_allowed({"SPACE_ID": "x", "SPECDEMO_ATTACH": "1"})


def test_lanes_together_are_the_same_race():
    """Endpoints on machines of their own may run at once; what is told is the same."""
    with ScriptedEngine("llama.cpp", [0.2, *PLAIN], speculates=False) as first:
        with ScriptedEngine("llama.cpp", [0.2, *DRAFT]) as second:
            where = dict(kind="llama.cpp", plain=first.url, speculative=second.url)
            apart, together = (
                list(race(attach("there", Served(**where, together=both)), Request("hi")))
                for both in (False, True)
            )
    assert {"ar", "spec"} <= {e.lane for e in together if e.kind == "prefill_progress"} | {"ar"}
    parse_trace(dump_trace(together))
    assert written(together) == written(apart)
    kinds = [[e.kind for e in events if "progress" not in e.kind] for events in (apart, together)]
    assert kinds[0] == kinds[1]


def test_a_lane_that_breaks_beside_the_other_keeps_both():
    with ScriptedEngine("llama.cpp", [*PLAIN[:9], "cut"], speculates=False) as first:
        with ScriptedEngine("llama.cpp", DRAFT) as second:
            served = Served("llama.cpp", first.url, second.url, together=True)
            events, sentence = ended(race(attach("there", served), Request("hi")))
    texts = written(events)
    assert "plain endpoint broke the connection" in sentence and texts["ar"] and texts["spec"]
