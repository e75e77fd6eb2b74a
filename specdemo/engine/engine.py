"""A loaded pair with its measured costs: what a race runs on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..hardware import device_name
from ..models.chat import prompt_ids
from .cost import CostModel
from .target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..models.load import Loaded
    from .graphs.rounds import DeviceRounds

EnginePass = Literal["graph", "scripted", "eager"]


@dataclass
class Engine:
    """A loaded pair, ready to race.

    Attributes:
        costs: what its target passes cost here and which widths a race may use.
        rounds: what runs rounds on the device without the host's decisions, on a GPU where that was
            found to be exact; ``why_no_rounds`` is a sentence about why it is not there.
        lock: held by the one race that runs.
    """

    loaded: Loaded
    target: Target
    costs: CostModel
    rounds: DeviceRounds | None = None
    why_no_rounds: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.loaded.tokenizer

    def now(self) -> float:
        """Seconds of a monotonic clock. A lane's laps end where the host has read their result, so
        nothing waits for the device here.
        """
        return time.perf_counter()

    @property
    def pass_kind(self) -> EnginePass:
        """How the target's layers run in a race."""
        return self.target.pass_kind if self.rounds is None else "graph"

    def encode(self, prompt: str) -> list[int]:
        """Token ids of one user message, see :func:`.models.chat.prompt_ids`."""
        return prompt_ids(self.tokenizer, prompt, self.loaded.pair.thinking)

    def vocab(self, ids: list[int]) -> dict[str, str]:
        """Each id's own text, for the vocabulary tables of events."""
        return {str(i): str(self.tokenizer.decode([i])) for i in dict.fromkeys(ids)}

    def hardware(self) -> str:
        """What this runs on, in words."""
        return device_name(self.target.device)
