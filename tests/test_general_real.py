"""A real model of a second family through the general step: Gemma 3 270M, whose terms of use are
Google's. It is fetched (240 MB) and converted, which takes minutes, only on request:

    SPECDEMO_TEST_GEMMA=1 python -m pytest -n 0 -m slow tests/test_general_real.py
"""

from __future__ import annotations

import os

import pytest

from specdemo.engine import load_engine
from specdemo.engine.race import race
from specdemo.request import Request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(not os.environ.get("SPECDEMO_TEST_GEMMA"), reason="only on request"),
]
PROMPT = "Numbers: one, two, three, four, five, six. Again: one, two, three,"


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_gemma_races_identically(dtype):
    engine = load_engine("gemma3-270m", dtype, "cpu")
    assert engine.step == "general"
    for method in ("lookup", "best"):  # of n-gram copies alone, as there is no drafter
        request = Request(PROMPT, method=method, max_new_tokens=48, check="exact")
        done = list(race(engine, request))[-1]
        assert done.result["identical"] and done.result["spec"]["accepted_per_round"] > 0
