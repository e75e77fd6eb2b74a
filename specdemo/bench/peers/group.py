"""The peers of one bench, opened together: what they are, and their answers as lines of the
``runs.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ...errors import UserError, first_line
from ...repetition import uniqueness
from .base import PeerSetup, RunningPeer
from .names import ONE_ROW

if TYPE_CHECKING:
    from ...engine import Engine
    from ...models.fetch import Progress

PeerRun = dict[str, Any]


class Peers:
    """Running peers by name.

    Attributes:
        facts: by name, ``PeerFacts.to_dict()``, or ``{"missing": sentence}`` where a peer cannot
            run here.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], max_new_tokens: int, end_ids: Sequence[int]
    ):
        self._encode, self._max_new_tokens, self._ends = encode, max_new_tokens, end_ids
        self._running: dict[str, RunningPeer] = {}
        self.facts: dict[str, dict[str, Any]] = {}

    def open(self, name: str, make: Callable[[], RunningPeer]) -> None:
        """Load one peer; where that fails, note why."""
        try:
            self._running[name] = make()
            self.facts[name] = self._running[name].facts.to_dict()
        except Exception as error:  # a peer is other people's code; whatever it raises is a row
            self.facts[name] = {"missing": _sentence(error)}

    @property
    def names(self) -> list[str]:
        """Those that run."""
        return list(self._running)

    def answer(self, name: str, prompt: str) -> PeerRun:
        """One answer, or ``{"failed": sentence}``."""
        try:
            found = self._running[name].answer(self._encode(prompt), self._max_new_tokens)
        except Exception as error:
            return {"failed": _sentence(error)}
        return {
            "ids": found.ids,
            "tokens": found.tokens,
            "seconds": found.seconds,
            "ttft_seconds": found.ttft_seconds,
            "rounds": found.rounds,
            "unique": uniqueness(found.ids),
        }

    def same(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether two answers are the same, with or without an end token behind them."""
        a, b = (ids[:-1] if ids and ids[-1] in self._ends else ids for ids in (one, other))
        return list(a) == list(b)

    def close(self) -> None:
        for peer in self._running.values():
            with suppress(Exception):
                peer.close()


@contextmanager
def open_peers(
    engine: Engine,
    names: Sequence[str],
    prompts: Sequence[str],
    max_new_tokens: int,
    progress: Progress,
) -> Iterator[Peers]:
    """The named peers with their weights in memory, and the one-row kernel beside them; without
    names, none at all.
    """
    if not names:
        yield Peers(lambda prompt: [], 0, ())
        return
    from . import hf, llamacpp, onnx_genai, own

    peers = Peers(engine.encode, max_new_tokens, engine.loaded.eos_ids)
    longest = max(len(engine.encode(prompt)) for prompt in prompts)
    setup = PeerSetup(engine, longest + max_new_tokens, progress)
    ways: dict[str, Callable[[PeerSetup], RunningPeer]] = {
        ONE_ROW: own.OneRow,
        **hf.OPEN,
        **llamacpp.OPEN,
        **onnx_genai.OPEN,
    }
    for name in (ONE_ROW, *names):
        progress(f"loading {name}", None)
        peers.open(name, lambda name=name: ways[name](setup))  # type: ignore[misc]
    try:
        yield peers
    finally:
        peers.close()


def _sentence(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    return f"It failed ({type(error).__name__}: {first_line(error)})."
