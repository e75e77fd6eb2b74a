"""The prompt of a race, read once for all of its lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ..hardware import clock_now
from ..models.decoder import KVCache
from .target import chunks

if TYPE_CHECKING:
    from .engine import Engine


class ReadPrompt:
    """A prompt that the target reads into a cache, a chunk at a time.

    Args:
        cache: empty; the lane that owns it needs no copy.
        taps: layers whose outputs a drafter wants.

    Attributes:
        logits: ``[1, V]`` after its last token, once it is read.
        features: the taps of its tokens, a chunk each.
        seconds: measured so far; the time to first token of every lane begins with it.
    """

    logits: torch.Tensor

    def __init__(self, engine: Engine, ids: list[int], cache: KVCache, taps: tuple[int, ...]):
        self.engine, self.ids, self.cache, self.taps = engine, list(ids), cache, taps
        self.features: list[torch.Tensor] = []
        self.seconds = 0.0

    def chunks(self) -> Iterator[int]:
        """Read it; yields how many of its tokens are read, before and after each chunk."""
        done = 0
        for chunk in chunks(self.ids):
            yield done
            self._read(chunk)
            done += len(chunk)
        yield done

    def read(self) -> None:
        """Read it without a pause."""
        for _ in self.chunks():
            pass

    @torch.inference_mode()
    def _read(self, chunk: list[int]) -> None:
        device = self.engine.target.device
        began = clock_now(device)  # a chunk is done, or Stop would wait for all of them
        self.logits, features = self.engine.target.prefill(self.cache, chunk, self.taps)
        if features is not None:
            self.features.append(features)
        self.seconds += clock_now(device) - began
