"""A loaded pair with its measured costs: what a race runs on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..errors import UserError
from ..hardware import device_name, thread_counts
from ..models.chat import prompt_ids
from .calibrate import SECONDS, calibrate, equal_wider_widths
from .cost import WIDTHS, CostModel, Measured
from .pace import Pace
from .roofline import Speeds, machine_speeds
from .step import AnyTarget, StepKind
from .target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..models.load import Loaded
    from .graphs.rounds import DeviceRounds

REFINING = 0.3  # seconds after a race, while costs are not sure
EnginePass = Literal["graph", "compiled", "eager"]


@dataclass
class Engine:
    """A loaded pair, ready to race.

    Attributes:
        costs: what its target passes cost here, when a race begins, and which widths it may use.
        rounds: what runs rounds on the device without the host's decisions, on a GPU where that was
            found to be exact; ``why_no_rounds`` is a sentence about why it is not there.
        lock: held by the one race that runs.
        pace: changes the threads and corrects the costs; None: they stay as they are.
        keep: called with better costs by number of threads, as a race or :meth:`measure_again`
            found them, and whether they are sure.
        why_general: why the target's passes run through transformers' own model, in words; empty:
            they do not.
        speeds: how fast this machine reads and computes; None: not measured.
        tried_wider: whether :meth:`widen` has looked.
    """

    loaded: Loaded
    target: AnyTarget
    costs: CostModel
    rounds: DeviceRounds | None = None
    why_no_rounds: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pace: Pace | None = None
    keep: Callable[[Measured], None] = lambda found: None
    why_general: str = ""
    speeds: Speeds | None = None
    tried_wider: bool = False

    def widen(self, nodes: int) -> None:
        """Find out which wider passes have the same bits, where drafts of so many nodes are asked
        for and none that is known holds them: once, and between two races.
        """
        if nodes < max(WIDTHS[-1], self.costs.max_rows) or self.tried_wider:
            return
        with self.lock:
            self.tried_wider = True
            wider = [w for w in equal_wider_widths(self.target) if w not in self.costs.widths]
            if not wider:
                return
            widths = sorted({*self.costs.widths, *wider})
            if self.pace is None:
                found = calibrate(self.target, widths)
                self.costs = next(iter(found.curves.values()))
                return
            self._measure_all(self.pace, widths)

    def begin_race(self) -> None:
        """All threads, if nothing else runs, and their costs."""
        if self.pace is not None:
            self.pace.begin()
            self.costs = self.pace.costs

    def end_race(self) -> None:
        """The costs follow the passes of the race that is over, and what was measured at load
        beside other work is measured on.
        """
        if self.pace is None:
            return
        better = self.pace.end()
        if not self.pace.sure and self.pace.threads == self.pace.most:
            better |= self.pace.learn(self._measured(self.pace, self.costs.widths, REFINING))
        if better:
            self.keep(Measured(self.pace.undisturbed, self.pace.sure))
        self.costs = self.pace.costs

    def measure_again(self) -> bool:
        """Measure the passes anew; whether that was possible: not in the middle of a race."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if self.pace is not None:
                self._measure_all(self.pace, self.costs.widths)
            self.speeds = machine_speeds(self.target.device, self.target.dtype)
            return True
        finally:
            self.lock.release()

    def _measure_all(self, pace: Pace, widths: list[int]) -> None:
        """Costs of passes of these widths in the place of all that was known."""
        self.pace = Pace(self._measured(pace, widths, SECONDS))
        self.costs = self.pace.costs
        self.keep(Measured(self.pace.undisturbed, self.pace.sure))

    def _measured(self, pace: Pace, widths: list[int], seconds: float) -> Measured:
        threads = thread_counts(self.target.device, pace.most)
        return calibrate(self.target, widths, threads, seconds)

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

    @property
    def dtype(self) -> str:
        """What the target computes in, and what its weights are stored in where that is less."""
        name, bits = self.target.dtype_name, self.loaded.quantized
        if bits == "int4":
            return name
        return f"{name}, weights in {bits.removesuffix('bit')} bits" if bits else name

    @property
    def fast_target(self) -> Target:
        """The target, for what runs on the fast step alone.

        Raises:
            UserError: its passes run through transformers' own model.
        """
        if isinstance(self.target, Target):
            return self.target
        raise UserError(
            "This needs a target whose passes are SpecDemo's own, and this one runs through"
            f" transformers' own model ({self.why_general}); choose another pair."
        )

    @property
    def step(self) -> StepKind:
        """Whether a pass is ours or one of transformers' own model."""
        return "fast" if isinstance(self.target, Target) else "general"

    def encode(self, prompt: str) -> list[int]:
        """Token ids of one user message, see :func:`.models.chat.prompt_ids`."""
        return prompt_ids(self.tokenizer, prompt, self.loaded.pair.thinking)

    def vocab(self, ids: list[int]) -> dict[str, str]:
        """Each id's own text, for the vocabulary tables of events."""
        return {str(i): str(self.tokenizer.decode([i])) for i in dict.fromkeys(ids)}

    def hardware(self) -> str:
        """What this runs on, in words."""
        return device_name(self.target.device, self.pace.most if self.pace else None)
