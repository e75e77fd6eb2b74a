"""A request is checked once, where it is built, and is the same in every process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from specdemo.drafters import METHODS
from specdemo.errors import UserError
from specdemo.request import Request, Sampling


def test_it_loads_no_torch():
    code = "import sys, specdemo.request; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_request_reaches_another_process_unchanged(method):
    request = Request(
        "Hello", method, sampling=Sampling(0.7, 5, seed=3), stop=("END",), record=False
    )
    assert isinstance(request.params, METHODS[method].params)
    assert Request.from_dict(json.loads(json.dumps(request.to_dict()))) == request


def test_it_cannot_change_after_it_was_checked():
    request = Request("Hello")
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.rule = "ratio"
    with pytest.raises(UserError, match="cannot use the rule"):
        dataclasses.replace(request, rule="ratio")


@pytest.mark.parametrize("params", [{"gamma": 99}, {"unknown": 1}, [1], "gamma=7", None])
def test_parameters_are_named_and_within_their_limits(params):
    with pytest.raises(UserError):
        Request("Hello", "block", params)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": float("nan")},
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"seed": -1},
        {"top_k": 2.5},
        {"repetition_penalty": 0},
        {"temperature": "hot"},
    ],
)
def test_hostile_sampling(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        Sampling(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": "  "},
        {"method": "magic"},
        {"rule": "lossy"},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"max_new_tokens": 10**9},
        {"stop": ("",)},
        {"stop": "END"},
        {"lanes": "none"},
        {"check": "vague"},
        {"rule": "ratio"},
    ],
)
def test_hostile_request(bad):
    """C04, C19, C22: refused with one sentence before anything runs."""
    with pytest.raises(UserError) as refusal:
        Request(**({"prompt": "hello", "method": "lookup"} | bad))
    assert len(str(refusal.value)) > 20 and "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["caf\udce9 ole", "a\ud83d", "\udc00"])
def test_what_is_no_text_is_refused(text):
    for make in (lambda: Request(text), lambda: Request("x", stop=(text,))):
        with pytest.raises(UserError, match="is not text at character .* in UTF-8"):
            make()


HUGE = 10**5000  # of more digits than Python prints


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": HUGE},
        {"seed": -HUGE},
        {"top_p": float("inf")},
        {"top_k": HUGE},
        {"temperature": "x" * 10**6},
    ],
)
def test_a_value_of_any_size_is_one_short_sentence(bad):
    with pytest.raises(UserError) as said:
        Sampling(**bad)
    assert len(str(said.value)) < 200


@pytest.mark.parametrize("seed", [2**53 + 2, 123456789012345680000, -(10**20)])
def test_a_seed_that_a_browser_has_rounded_is_not_quoted(seed):
    with pytest.raises(UserError, match="2,147,483,647, not one of so many digits"):
        Sampling(seed=seed)
    with pytest.raises(UserError, match="not 9007199254740992"):
        Sampling(seed=2**53)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"prompt": None},
        {"prompt": "x", "sampling": 5},
        {"prompt": "x", "sampling": {"heat": 1}},
        {"prompt": "x", "more": 1},
        {"prompt": "x", 5: 1},
        {"prompt": "x", "params": {5: 1}},
        {"prompt": "x", "params": {"gamma": HUGE}},
        {"prompt": "x", "params": {"gamma": 1e400}},
        {"prompt": "x", "method": ["block"]},
        {"prompt": "x", "max_new_tokens": HUGE},
        {"prompt": "x", "rule": {}},
        {"prompt": "x", "lanes": HUGE},
        {"prompt": "x", "check": []},
        {"prompt": "x", "record": "maybe"},
    ],
)
def test_data_from_outside_is_a_request_or_one_sentence(data):
    with pytest.raises(UserError) as said:
        Request.from_dict(data)
    assert len(str(said.value)) < 400
