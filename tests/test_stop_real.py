"""Stop in a prompt of nearly all of the target's positions, whose chunks are the slowest at its
end.
"""

from __future__ import annotations

import threading
import time

import pytest

from specdemo.engine import race
from specdemo.events import Done, PrefillProgress
from specdemo.request import Request

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_a_long_prompt_is_stopped_within_a_second(engine_bf16):
    cancel, pressed, events, timer = threading.Event(), [], [], None

    def press() -> None:
        pressed.append(time.perf_counter())
        cancel.set()

    for event in race(engine_bf16, Request("word " * 7900, "best"), cancel):
        events.append(event)
        if isinstance(event, PrefillProgress) and event.read > 7000 and timer is None:
            timer = threading.Timer(0.02, press)  # while the next chunk is read
            timer.start()
    waited = time.perf_counter() - pressed[0]
    assert isinstance(events[-1], Done) and events[-1].stopped and waited < 1.0
    assert any(isinstance(e, PrefillProgress) and 7000 < e.read < 7900 for e in events)
