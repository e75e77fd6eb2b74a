"""SGLang and TensorRT-LLM, which no test can start: streams with the fields that their sources
name, in the forms that several versions send.
"""

from __future__ import annotations

import json

import pytest
from scripted_engine import ScriptedEngine
from test_attached import run, written

from specdemo.attached.race import attach
from specdemo.errors import UserError
from specdemo.models.served import Served
from specdemo.traces import dump_trace, parse_trace

WORDS = ["The", " sky", " is", " blue", ",", " mostly", " at", " noon", "."]
PASSES = (1, 3, 1, 4)  # tokens of each chunk; the first is the prefill's
# what versions call drafted and accepted: 0.5.23, 0.5.15, 0.5.9
NAMES = (
    ("spec_num_proposed_drafts", "spec_num_correct_drafts"),
    ("spec_proposed_drafts", "spec_accepted_drafts"),
    ("spec_draft_token_num", "spec_accept_token_num"),
)


def data(value):
    return "data: " + json.dumps(value)


def sglang(passes=PASSES, cumulative=False, names=NAMES[0], speculative=True):
    """``/generate`` of a server with ``--incremental-streaming-output``, or without."""
    lines, end = [], 0
    for size in passes:
        start, end = (0 if cumulative else end), end + size
        meta = {"completion_tokens": end, "prompt_tokens": 3, "cached_tokens": 0}
        meta["finish_reason"] = {"type": "length", "length": 9} if end == len(WORDS) else None
        if meta["finish_reason"] and speculative:  # the totals come with the last chunk
            meta |= {"spec_verify_ct": 3, names[0]: 12, names[1]: 5}
        ids = list(range(10 + start, 10 + end))
        lines.append(
            data({"text": "".join(WORDS[start:end]), "output_ids": ids, "meta_info": meta})
        )
    return [*lines, "data: [DONE]"]


def trtllm(passes=PASSES, average=9 / 4):
    """``/v1/chat/completions``: no ids, a running average; the role in a chunk of its own."""
    lines = [data({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})]
    end = 0
    for size in passes:
        start, end = end, end + size
        choice = {"index": 0, "delta": {"content": "".join(WORDS[start:end])}}
        choice["avg_decoded_tokens_per_iter"] = average
        choice["finish_reason"] = "length" if end == len(WORDS) else None
        lines.append(data({"choices": [choice]}))
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    return [*lines, data({"choices": [], "usage": usage}), "data: [DONE]"]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("cumulative", [False, True])
def test_sglang(cumulative, names):
    plain = sglang((1,) * 9, cumulative, speculative=False)
    events = run("sglang", plain, sglang(cumulative=cumulative, names=names))
    parse_trace(dump_trace(events))
    result, served = events[-1].result, events[-1].result["served"]
    assert written(events) == {"ar": "".join(WORDS), "spec": "".join(WORDS)}
    assert served["comparison"] == "tokens" and result["output_ids"] == list(range(10, 19))
    assert served["rounds"] == "inferred" and result["spec"]["rounds"] == 3
    assert (served["drafted"], served["accepted"]) == (12, 5)
    assert result["finish_reason"] == "length" and served["engine"] == "SGLang 0.5.23"
    kept = [len(event.kept) for event in events if event.kind == "verify"]
    assert kept == list(PASSES[1:])


def test_sglang_with_a_reader_that_was_late():
    """Two passes in one chunk: totals, and no round is made up."""
    served = run("sglang", speculative=sglang((1, 4, 4)), lanes="spec")[-1].result["served"]
    assert served["rounds"] == "totals" and (served["drafted"], served["accepted"]) == (12, 5)


def test_an_sglang_that_cannot_put_a_chat_into_tokens():
    with ScriptedEngine("sglang", sglang((1,) * 9), speculates=False) as first:
        first.replies["/tokenize"] = 200, {"tokens": [[1, 2]]}
        with ScriptedEngine("sglang", sglang()) as second:
            with pytest.raises(UserError, match="this version of SGLang is too old"):
                run("sglang", engines=(first, second))


def test_trtllm():
    events = run("trtllm", trtllm((1,) * 9, 1.0), trtllm())
    parse_trace(dump_trace(events))
    result, served = events[-1].result, events[-1].result["served"]
    assert written(events) == {"ar": "".join(WORDS), "spec": "".join(WORDS)}
    assert served["comparison"] == "text" and served["drafted"] is None
    assert result["spec"]["rounds"] == 3 and result["ar"]["tokens"] == 9


def test_trtllm_tells_by_its_counters_whether_it_speculates():
    """They appear with the first draft; the page that is emptied by reading it is not read."""
    with ScriptedEngine("trtllm") as first, ScriptedEngine("trtllm") as second:
        first.replies["/metrics"] = second.replies["/metrics"] = "hold"
        served = Served("trtllm", first.url, second.url)
        attach("there", served)  # nothing is told
        counter = 'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 12\n'
        first.replies["/prometheus/metrics"] = 200, counter
        with pytest.raises(UserError, match="plain endpoint speculates too"):
            attach("there", served)


@pytest.mark.parametrize("kind", ["sglang", "trtllm"])
def test_each_engine_gets_only_fields_of_its_own(kind):
    """TensorRT-LLM refuses a request with a field that it does not know."""
    plain, lines = {
        "sglang": (sglang((1,) * 9, speculative=False), sglang()),
        "trtllm": (trtllm((1,) * 9), trtllm()),
    }[kind]
    engines = ScriptedEngine(kind, plain, speculates=False), ScriptedEngine(kind, lines)
    run(kind, engines=engines)
    known = {
        "sglang": {"input_ids", "stream", "sampling_params"},
        "trtllm": {"model", "messages", "stream", "max_tokens", "temperature", "stream_options",
            "seed"},
    }[kind]  # fmt: skip
    assert all(set(engine.bodies[0]) == known for engine in engines)
