"""Races in the worker process to which ZeroGPU gives a GPU for a short while."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..request import Request

if TYPE_CHECKING:
    from ..engine import Engine
    from ..models.load import Loaded


class GpuWorker:
    """Pairs read in the main process, and races on them in worker processes, which are forked from
    it and so find them in memory.

    ``spaces`` imitates CUDA on the main thread until the page is launched: tensors that are put on
    the GPU there are written to a file, and moved onto it when a worker process begins. What the
    target is checked for and what its passes cost can only be found on the GPU itself; the first
    worker process keeps it in the cache folder, or a folder named in ``SPECDEMO_PROFILES`` has it.
    """

    def __init__(self) -> None:
        self.loaded: dict[str, Loaded] = {}
        self.engines: dict[str, Engine] = {}

    def load(self, pair: str) -> None:
        """Read the target and its drafters. Call it on the main thread, before the launch.

        Raises:
            UserError: the target cannot be loaded.
        """
        from ..engine.load import load_drafters
        from ..models.load import load_target
        from ..models.pairs import get_pair

        self.loaded[pair] = load_target(get_pair(pair))
        load_drafters(self.loaded[pair])

    def stream(self, pair: str, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Plain event dicts of one race, in a worker process; the engine stays there while that
        process lives. A UserError is ``{"error": sentence}``, because exceptions do not travel
        well.
        """
        from ..engine import race

        try:
            for event in race(self._engine(pair), Request.from_dict(request)):
                yield event.to_dict()
        except UserError as error:
            yield {"error": str(error)}

    def _engine(self, pair: str) -> Engine:
        from ..engine.load import load_engine, make_engine
        from ..models.fetch import cache_root

        if pair not in self.engines:
            self.engines[pair] = (
                make_engine(self.loaded[pair], profiles=cache_root() / "profiles")
                if pair in self.loaded
                else load_engine(pair)
            )
        return self.engines[pair]


def gpu_seconds(pair: str, request: dict[str, Any]) -> int:
    """How long to ask ZeroGPU for: moving the weights, checking and measuring where no profile is
    kept, then the lanes at a pace that any GPU keeps.
    """
    per_token = 0.08 if request.get("against") else 0.06
    return min(110, 20 + round(per_token * request["max_new_tokens"]))
