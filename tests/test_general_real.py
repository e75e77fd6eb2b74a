"""A real model of a second family, fetched on request: Gemma 3 270M through the general step."""

from __future__ import annotations

import pytest

from specdemo.engine import load_engine
from specdemo.engine.race import race
from specdemo.request import Request

pytestmark = [pytest.mark.slow, pytest.mark.real]
PROMPT = "Numbers: one, two, three, four, five, six. Again: one, two, three,"


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_gemma_races_identically(dtype):
    engine = load_engine("gemma3-270m", dtype, "cpu")
    assert engine.step == "general"
    request = Request(PROMPT, method="lookup", max_new_tokens=48, check="exact")
    done = list(race(engine, request))[-1]
    assert done.result["identical"] and done.result["spec"]["accepted_per_round"] > 0
