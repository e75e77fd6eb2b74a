"""What a server's process holds does not grow with the prompts it has seen."""

from __future__ import annotations

import random

import psutil
import pytest

from specdemo.engine import race
from specdemo.request import Request

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_memory_is_flat_over_prompts_of_many_lengths(engine_bf16):
    """After 200 races within a tenth of what it was after 20."""
    rng, process, held = random.Random(1), psutil.Process(), {}
    lengths = set()
    words_of = [n for _ in range(3) for n in rng.sample(range(1, 81), 80)][:200]
    for number, words in enumerate(words_of, 1):
        prompt = " ".join(rng.choices(("one", "word", "after", "another", "42"), k=words))
        request = Request(prompt, "best", max_new_tokens=3, record=bool(number % 2))
        *_, done = race(engine_bf16, request)
        lengths.add(done.result["prompt_tokens"])
        held[number] = process.memory_info().rss
    assert len(lengths) > 60
    assert held[200] < 1.1 * held[20], {n: held[n] >> 20 for n in range(20, 201, 20)}
