"""A loaded pair with its measured costs: what a race runs on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..hardware import device_name
from ..models.chat import prompt_ids
from .cost import CostModel
from .target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..models.load import Loaded


@dataclass
class Engine:
    """A loaded pair, ready to race.

    Attributes:
        costs: what its target passes cost here and which widths a race may use.
        lock: held by the one race that runs.
    """

    loaded: Loaded
    target: Target
    costs: CostModel
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.loaded.tokenizer

    def now(self) -> float:
        """Seconds of a monotonic clock. A lane's laps end where the host has read their result, so
        nothing waits for the device here.
        """
        return time.perf_counter()

    def encode(self, prompt: str) -> list[int]:
        """Token ids of one user message, see :func:`.models.chat.prompt_ids`."""
        return prompt_ids(self.tokenizer, prompt, self.loaded.pair.thinking)

    def vocab(self, ids: list[int]) -> dict[str, str]:
        """Each id's own text, for the vocabulary tables of events."""
        return {str(i): str(self.tokenizer.decode([i])) for i in dict.fromkeys(ids)}

    def hardware(self) -> str:
        """What this runs on, in words."""
        return device_name(self.target.device)
