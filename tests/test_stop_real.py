"""Stop in a prompt of nearly all of the target's positions, whose chunks are the slowest at its
end.
"""

from __future__ import annotations

import threading

import pytest

from specdemo.engine import race
from specdemo.engine.target import chunks
from specdemo.events import Done, PrefillProgress
from specdemo.request import Request

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_stop_in_a_long_prompt_waits_for_the_chunk_that_is_read_and_no_other(engine_bf16):
    """At these positions a chunk takes a few tenths of a second on two idle cores."""
    cancel, pressed, events, timer = threading.Event(), [], [], None

    def press() -> None:
        pressed.append(len(events))
        cancel.set()

    for event in race(engine_bf16, Request("word " * 7900, "best"), cancel):
        events.append(event)
        if isinstance(event, PrefillProgress) and event.read > 7000 and timer is None:
            timer = threading.Timer(0.02, press)  # while the next chunk is read
            timer.start()
    assert isinstance(events[-1], Done) and events[-1].stopped
    read = [e.read for e in events if isinstance(e, PrefillProgress)]
    before = [e.read for e in events[: pressed[0]] if isinstance(e, PrefillProgress)]
    longest_chunk = max(len(chunk) for chunk in chunks([0] * 1000, before[-1]))
    assert 7000 < before[-1] <= read[-1] <= before[-1] + longest_chunk
