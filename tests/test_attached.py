"""Lanes attached to serving engines: every recorded stream replays through its client into a trace
whose totals are the engine's. The server is scripted, what it plays was recorded from real ones.
"""

from __future__ import annotations

import json
import threading
import time

import pytest
from scripted_engine import CAPTURES, ScriptedEngine, captured

from specdemo.attached.client import UNNAMED, Piece, Step, Tail
from specdemo.attached.race import attach, race
from specdemo.attached.settle import Words, settle
from specdemo.events import ArToken, Denoise, Done, DraftMade, PrefillProgress, Verify
from specdemo.models.served import Served
from specdemo.request import Request, Sampling
from specdemo.traces import dump_trace, parse_trace

KIND = {"llamacpp": "llama.cpp", "vllm": "vllm", "transformers": "transformers"}
STREAMS = [
    name
    for name, capture in CAPTURES.items()
    if name.split("_")[0] in KIND
    and not capture["closed_by_us"]
    and len(capture["events"]) > 3
    and "err" not in name
]
STOPPED = [n for n, c in CAPTURES.items() if c["closed_by_us"] and n.split("_")[0] in KIND]
SPECULATIVE = [name for name in STREAMS if "plain" not in name]


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch):
    """These servers' counters never move: nothing is gained by looking for a second."""
    monkeypatch.setattr("specdemo.attached.compare.SETTLE_SECONDS", 0.05)


def run(kind, plain=None, speculative=None, lanes="both", cancel=None, engines=None, **options):
    """The events of a race between scripted endpoints."""
    engines = engines or (
        ScriptedEngine(kind, plain or [], speculates=False),
        ScriptedEngine(kind, speculative or []),
    )
    with engines[0] as first, engines[1] as second:
        served = Served(kind, first.url, second.url, model="m", drafts="what it drafts")
        request = Request("hi", max_new_tokens=128, lanes=lanes, **options)
        return list(race(attach("there", served), request, cancel))


def data_of(name):
    lines = [line.removeprefix("data: ") for line in captured(name)]
    return [json.loads(line) for line in lines if line.startswith("{")]


def told(name):
    """(drafted, accepted, passes) by the engine's own words at the end of a recorded stream."""
    last = data_of(name)
    if name.startswith("vllm"):
        spec = next(d["metrics"]["speculative_decoding"] for d in last if "metrics" in d)
        usage = next(d["usage"] for d in reversed(last) if d.get("usage"))
        accepted = spec["num_accepted_draft_tokens"]
        return spec["num_draft_tokens"], accepted, usage["completion_tokens"]
    timings = [d["timings"] for d in last if "timings" in d][-1]
    return timings.get("draft_n", 0), timings.get("draft_n_accepted", 0), timings["predicted_n"]


def written(events):
    """The text of each lane, put together from its events."""
    texts = {"ar": "", "spec": ""}
    for event in events:
        if event.kind == "prefill":
            texts[event.lane] += event.text
        elif event.kind == "ar_token":
            texts["ar"] += event.text
        elif event.kind == "verify":
            texts["spec"] += "".join(token["text"] for token in event.kept)
    return texts


@pytest.mark.parametrize("name", SPECULATIVE)
def test_a_recorded_stream_becomes_a_trace(name):
    events = run(KIND[name.split("_")[0]], speculative=captured(name), lanes="spec")
    assert parse_trace(dump_trace(events))[-1].to_dict() == events[-1].to_dict()
    assert not any(isinstance(event, Denoise) for event in events)
    done = events[-1]
    assert isinstance(done, Done) and not done.stopped
    assert written(events)["spec"] == done.spec_text and done.spec_text
    if name.startswith("transformers"):
        assert done.result["served"]["rounds"] == "inferred"
        return
    drafted, accepted, tokens = told(name)
    served, spec = done.result["served"], done.result["spec"]
    assert (served["drafted"], served["accepted"]) == (drafted, accepted)
    assert spec["tokens"] == tokens == len(done.result["output_ids"])
    rounds = [event for event in events if isinstance(event, Verify)]
    drafts = [event for event in events if isinstance(event, DraftMade)]
    assert len(rounds) == spec["rounds"]
    if served["rounds"] != "totals":
        assert sum(len(draft.tokens) for draft in drafts) == drafted
        kept = sum(token["source"] == "accepted" for event in rounds for token in event.kept)
        dropped = sum(event.status.count("dropped") for event in rounds)
        assert kept + dropped == accepted


def test_which_streams_tell_each_pass():
    sure = {
        name: run(KIND[name.split("_")[0]], speculative=captured(name), lanes="spec")[-1].result[
            "served"
        ]["rounds"]
        for name in SPECULATIVE
    }
    assert all(sure[name] == "told" for name in SPECULATIVE if name.startswith("llamacpp"))
    assert sure["vllm_0.32.0_draft_chat"] == sure["vllm_0.32.0_dflash_random_chat"] == "told"
    assert sure["vllm_0.32.0_ngram_rep"] == "inferred"  # 36 passes of 41 drafted


@pytest.mark.parametrize("name", [name for name in STREAMS if "plain" in name])
def test_a_recorded_plain_stream_becomes_a_trace(name):
    events = run(KIND[name.split("_")[0]], plain=captured(name), lanes="ar")
    parse_trace(dump_trace(events))
    done = events[-1]
    tokens = [event for event in events if isinstance(event, ArToken)]
    expected = [d["usage"]["completion_tokens"] for d in data_of(name) if d.get("usage")][-1]
    assert done.result["ar"]["tokens"] == len(tokens) + 1 == expected
    assert written(events)["ar"] == done.ar_text and done.result["spec"] is None


@pytest.mark.parametrize("name", STOPPED)
def test_what_a_stopped_stream_had_brought_is_kept(name):
    """The recording ends where the client closed it; here the server holds the line there."""
    kind, cancel = KIND[name.split("_")[0]], threading.Event()
    engines = (
        ScriptedEngine(kind, captured("llamacpp_b11549_plain_rep"), speculates=False),
        ScriptedEngine(kind, [*captured(name), "hold"]),
    )

    def stop():
        engines[1].held.wait(10)
        time.sleep(0.3)  # until what was sent is read
        cancel.set()

    threading.Thread(target=stop).start()
    events = run(kind, lanes="spec", cancel=cancel, engines=engines)
    parse_trace(dump_trace(events))
    assert events[-1].stopped and events[-1].result["finish_reason"] == "stopped"
    assert events[-1].result["speedup"] is None
    assert written(events)["spec"] == events[-1].spec_text and events[-1].spec_text
    assert engines[1].gone.wait(2)


def test_both_lanes_are_told_in_the_order_of_their_clocks():
    events = run("llama.cpp", captured("llamacpp_b11549_plain_chat"),
        captured("llamacpp_b11549_draft_native"))  # fmt: skip
    parse_trace(dump_trace(events))
    clocks = [e.clock for e in events if isinstance(e, (ArToken, Verify))]
    assert clocks == sorted(clocks) and clocks[-1] > 1
    assert any(isinstance(e, PrefillProgress) and e.lane == "ar" for e in events)
    done = events[-1]
    served = done.result["served"]
    assert served["clock"] == "engine" and served["engine"] == "llama.cpp b11549"
    assert done.result["identical"] is None
    # one has 128 tokens and no ids, the other 40 of the same text
    assert served["comparison"] == "parted" and served["parted_at"] is not None
    assert done.ar_text[: served["parted_at"]] == done.spec_text[: served["parted_at"]]
    ar, spec = done.result["ar"], done.result["spec"]
    assert done.result["speedup"] == pytest.approx(
        spec["tokens_per_second"] / ar["tokens_per_second"]
    )


def test_the_same_ids_are_the_same_tokens_and_unnamed_ones_the_same_text():
    stream = captured("llamacpp_b11549_draft_native")
    plain = [
        line.replace('"draft_n":', '"x":').replace('"draft_n_accepted":', '"y":') for line in stream
    ]
    assert run("llama.cpp", plain, stream)[-1].result["served"]["comparison"] == "tokens"
    nameless = [line.replace('"tokens":', '"z":') for line in stream]
    done = run("llama.cpp", plain, nameless)[-1]
    assert done.result["served"]["comparison"] == "text"
    assert set(done.result["output_ids"]) == {UNNAMED}
    sampled = run("llama.cpp", plain, stream, sampling=Sampling(temperature=1.0))[-1]
    assert sampled.result["served"]["comparison"] == "none"


def test_a_chunk_is_cut_into_its_tokens_where_their_text_is_known():
    words = Words()
    for id, text in ((1, "The"), (2, " sky"), (4, " blue")):
        words.cut(Step([Piece("", id)], text=text))
    step = Step([Piece("", 2), Piece("", 3), Piece("", 4)], text=" sky is blue")
    words.cut(step)
    assert step.pieces == [Piece(" sky", 2), Piece(" is", 3), Piece(" blue", 4)]
    assert words.known[3] == " is"
    unknown = Step([Piece("", 8), Piece("", 9)], text=" never seen")
    words.cut(unknown)
    assert "".join(piece.text for piece in unknown.pieces) == " never seen"


def test_merged_chunks_are_totals_only():
    """Two passes of three tokens each arrive as one chunk."""
    steps = [Step([Piece("a", 1)]), Step([Piece("b", n) for n in range(6)])]
    assert settle(steps, Tail(per_pass=[(4, 2), (4, 2)], tokens=7, accepted=4)) == "totals"
    assert steps[1].drafted is None
    apart = [Step([Piece("a", 1)])] + [Step([Piece("b", n) for n in range(3)]) for _ in range(2)]
    assert settle(apart, Tail(per_pass=[(4, 2), (4, 2)], tokens=7, accepted=4)) == "told"
    assert [(s.drafted, s.accepted) for s in apart[1:]] == [(4, 2), (4, 2)]


def test_merged_chunks_of_a_real_stream_keep_text_and_totals():
    lines, merged, last = captured("vllm_0.32.0_draft_chat"), [], None
    for line in lines:
        data = json.loads(line[6:]) if line.startswith("data: {") else None
        choice = data["choices"][0] if data and data["choices"] else {}
        if last is not None and choice.get("token_ids") and len(merged) % 2:
            last["choices"][0]["delta"]["content"] += choice["delta"]["content"]
            last["choices"][0]["token_ids"] += choice["token_ids"]
            last["choices"][0]["finish_reason"] = choice["finish_reason"]
            merged[-1], last = "data: " + json.dumps(last), None
        else:
            merged.append(line)
            last = data if choice.get("token_ids") else None
    assert len(merged) < len(lines)
    done = run("vllm", speculative=merged, lanes="spec")[-1]
    whole = run("vllm", speculative=lines, lanes="spec")[-1]
    assert done.result["served"]["rounds"] == "totals" and "totals" in done.result["note"]
    assert done.spec_text == whole.spec_text
    for name in ("tokens", "rounds", "accepted_per_round", "tokens_per_round"):
        assert done.result["spec"][name] == whole.result["spec"][name]


def test_a_character_over_several_tokens_has_unnamed_ones():
    """llama.cpp sends no chunk for a token that ends inside a character."""

    def chunk(n, ms, text, id, drafted, accepted):
        timings = dict(predicted_n=n, predicted_ms=ms, prompt_ms=5, draft_n=drafted,
            draft_n_accepted=accepted)  # fmt: skip
        return "data: " + json.dumps({"content": text, "tokens": [id], "timings": timings})

    lines = [
        chunk(1, 0.001, "a", 5, 0, 0),
        chunk(2, 10, "b", 6, 3, 1),  # of this pass the second token ends inside a character
        chunk(5, 20, "😀", 9, 6, 2),
        "data: " + json.dumps({"content": "", "tokens": [], "stop": True, "stop_type": "eos"}),
    ]
    events = run("llama.cpp", speculative=lines, lanes="spec")
    rounds = [event for event in events if isinstance(event, Verify)]
    assert [[token["id"] for token in event.kept] for event in rounds] == [[6, -1], [-1, 9]]
    done = events[-1]
    assert done.spec_text == "ab😀" and done.result["spec"]["tokens"] == 5
    assert done.result["served"]["rounds"] == "told"
    assert events[2].kind == "draft" and parse_trace(dump_trace(events))
