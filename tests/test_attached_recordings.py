"""The recordings that are none of the usual streams, and that none of all is left out."""

from __future__ import annotations

import json

import pytest
from scripted_engine import CAPTURES, ScriptedEngine, captured
from test_attached import STOPPED, STREAMS, data_of, run, written
from test_attached_failures import DRAFT, REFUSALS

from specdemo.traces import dump_trace, parse_trace

TEMPLATE, IGNORED = "llamacpp_b11549_apply_template", "transformers_5.24.0_err_field"
ERROR_INSIDE, NO_CLIENT = "vllm_0.32.0_err_minp", "mlxlm_0.32.2_draft4_chat"


def test_no_recording_is_left_out():
    played = {*STREAMS, *STOPPED, *REFUSALS, TEMPLATE, IGNORED, ERROR_INSIDE, NO_CLIENT}
    assert played == set(CAPTURES) and len(CAPTURES) == 29


def test_the_prompt_has_the_form_that_llama_cpp_gives_it():
    engines = ScriptedEngine("llama.cpp", speculates=False), ScriptedEngine("llama.cpp", DRAFT)
    engines[1].replies["/apply-template"] = 200, captured(TEMPLATE)[0]
    run("llama.cpp", engines=engines, lanes="spec")
    assert engines[1].bodies[0]["prompt"] == json.loads(captured(TEMPLATE)[0])["prompt"]


def test_a_field_that_transformers_serve_ignores():
    """``stream_options`` is no error there; the answer is an ordinary one."""
    events = run("transformers", plain=captured(IGNORED), lanes="ar")
    parse_trace(dump_trace(events))
    assert written(events)["ar"] == events[-1].ar_text == "This is a list"
    assert events[-1].result["ar"]["tokens"] == 4


def test_a_chat_of_which_nothing_is_told_but_text():
    """mlx-lm, which has no client of its own, read as an OpenAI chat: no count is made up."""
    events = run("vllm", speculative=captured(NO_CLIENT), lanes="spec")
    parse_trace(dump_trace(events))
    done = events[-1]
    sent = (d["choices"][0]["delta"].get("content", "") for d in data_of(NO_CLIENT) if d["choices"])
    assert done.spec_text == "".join(sent) and set(done.result["output_ids"]) == {-1}
    assert done.result["served"]["drafted"] is done.result["served"]["accepted"] is None


@pytest.mark.parametrize("tokens", [[5], [5, 6, 7]])
def test_an_answer_that_comes_in_one_chunk(tokens):
    """What merges chunks on their way may merge all: the totals are still those of the events."""
    timings = {"predicted_n": len(tokens), "predicted_ms": 250.0, "prompt_ms": 9.0}
    chunk = {"content": "abc"[: len(tokens)], "tokens": tokens, "stop": False, "timings": timings}
    last = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "timings": timings}
    lines = ["data: " + json.dumps(data) for data in (chunk, last)]
    events = run("llama.cpp", plain=lines, speculative=lines)
    assert parse_trace(dump_trace(events))[-1].to_dict() == events[-1].to_dict()
    seconds = 0.25 if len(tokens) > 1 else 0.0
    assert events[-1].result["spec"]["seconds"] == events[-1].result["ar"]["seconds"] == seconds
