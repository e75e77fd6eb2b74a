"""This project's plain lane with the one-row kernel, measured as the peers are."""

from __future__ import annotations

from ...engine.lane import Lane
from ...request import Request
from .base import PeerAnswer, PeerFacts, PeerSetup


class OneRow:
    """One row a pass with the library's masked attention kernel: the fastest plain pass here,
    though not bitwise equal to the verify pass.
    """

    def __init__(self, setup: PeerSetup):
        from ... import __version__

        self.engine = setup.engine
        self.facts = PeerFacts(
            engine=f"SpecDemo {__version__}",
            weights="the model in memory",
            dtype=setup.engine.target.dtype_name,
            threads=setup.threads,
        )

    def answer(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        request = Request("-", method="ar", max_new_tokens=max_new_tokens, record=False)
        with self.engine.lock:
            self.engine.begin_race()
            lane = Lane(self.engine, request, ids, max_new_tokens, width=1, attention="masked")
            lane.prefill()
            while not lane.finish:
                lane.advance()
            self.engine.end_race()
        return PeerAnswer(
            ids=lane.output,
            tokens=len(lane.output) - 1,
            seconds=lane.clock,
            ttft_seconds=lane.ttft,
            rounds=lane.rounds,
        )

    def close(self) -> None:
        pass
