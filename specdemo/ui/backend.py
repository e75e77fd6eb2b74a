"""Where the page's races come from: this process, or a function on the other side of a process
border (ZeroGPU).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UserError


def make_request(ask: dict[str, Any]) -> Any:
    """An ``engine.Request`` from plain data; refuses what cannot run."""
    from ..request import Request, Sampling

    return Request(**(ask | {"sampling": Sampling(**ask["sampling"])}))


class Backend:
    """Loads and runs in this process. torch is imported with the first load, behind the page."""

    can_bench = True

    def load(self, pair: str, progress: Callable[[str, float | None], None]) -> Any:
        from ..engine import load_engine

        return load_engine(pair, progress=progress)

    def on_processor(self, engine: Any) -> bool:
        """Whether races compute on this machine's processor, which a browser on it also needs."""
        return engine.target.device.type == "cpu"

    def check(self, ask: dict[str, Any]) -> None:
        """Raises UserError before anybody waits for a model."""
        make_request(ask)

    def race(self, engine: Any, ask: dict[str, Any], cancel: threading.Event) -> Iterator[Any]:
        from ..engine import race

        return race(engine, make_request(ask), cancel)

    def bench(
        self,
        engine: Any,
        methods: list[str],
        prompts: list[tuple[str, str]],
        new_tokens: int,
        cancel: threading.Event,
    ) -> Iterator[tuple[float, dict[str, Any] | None, str]]:
        """A short bench over (category, prompt) pairs: (share done, report so far or None, what
        comes next).
        """
        from ..bench import short_run
        from ..prompts import Prompt

        return short_run(
            engine,
            methods,
            [Prompt(str(n), category, prompt) for n, (category, prompt) in enumerate(prompts, 1)],
            new_tokens,
            cancel=cancel,
        )


class BorderBackend(Backend):
    """Races run by ``stream(pair, ask)``, a generator of plain event dicts in a process that has
    the GPU for a short while.

    Nothing but plain values crosses. A refusal comes as ``{"refusal": sentence}``, because
    exceptions do not travel well; Stop closes the generator, which is looked at between two events.
    """

    can_bench = False  # it would use up a visitor's share of the GPU

    def __init__(self, stream: Callable[[str, dict[str, Any]], Iterator[dict[str, Any]]]):
        self.stream = stream

    def load(self, pair: str, progress: Callable[[str, float | None], None]) -> Any:
        """Only the files: fetching them on the other side would use up a visitor's share of the
        GPU.
        """
        from ..models.fetch import target_folder
        from ..models.pairs import get_pair

        target_folder(get_pair(pair), progress)
        return pair

    def on_processor(self, engine: Any) -> bool:
        return False

    def race(self, engine: Any, ask: dict[str, Any], cancel: threading.Event) -> Iterator[Any]:
        events = self.stream(engine, ask)
        try:
            for event in events:
                if "refusal" in event:
                    raise UserError(event["refusal"])
                yield event
                if cancel.is_set():
                    return
        finally:
            events.close()


@functools.lru_cache(maxsize=1)
def _engine(pair: str) -> Any:
    from ..engine import load_engine

    return load_engine(pair)


def gpu_stream(pair: str, ask: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Plain event dicts of one race, for the far side of a :class:`BorderBackend`; the engine stays
    there while that process lives.
    """
    from ..engine import race

    try:
        for event in race(_engine(pair), make_request(ask)):
            yield event.to_dict()
    except UserError as refusal:
        yield {"refusal": str(refusal)}


def gpu_seconds(pair: str, ask: dict[str, Any]) -> int:
    """How long to ask ZeroGPU for: loading and measuring, then both lanes at a pace that any GPU
    keeps.
    """
    return min(110, 30 + round(0.06 * ask["max_new_tokens"]))
