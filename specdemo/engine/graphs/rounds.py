"""What a loaded engine owns of rounds on the device: buffers and graphs, made once and used by
every race that fits them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from ...errors import UserError
from ...events import LaneName
from ...models.decoder import KVCache
from ...request import Request
from ..cost import WIDTHS, CostModel
from ..target import BUCKETS, Target
from .attention import Attention
from .capture import Capture, Step
from .choose import Processing
from .draft import DraftSteps
from .state import LaneState
from .verify import VerifyStep

SLOTS = (512, 2048, 8192, BUCKETS[-1])  # capacities; few, as each has graphs of its own


def slots_for(capacity: int) -> int:
    """The smallest capacity that holds so many slots.

    Raises:
        UserError: none does.
    """
    for slots in SLOTS:
        if capacity <= slots:
            return slots
    raise UserError(
        f"Prompt and answer need {capacity} cache slots and the largest cache has {SLOTS[-1]};"
        " shorten the prompt or ask for fewer tokens."
    )


class LaneGraphs:
    """Buffers and graphs of one lane. Graphs are captured when they are first asked for, which
    spoils what is in the buffers.
    """

    def __init__(
        self,
        target: Target,
        cache: KVCache,
        width: int,
        attention: Attention,
        capture: Capture,
        taps: tuple[int, ...] = (),
        draft: DraftSteps | None = None,
    ):
        self.target, self.attention, self.taps, self._capture = target, attention, taps, capture
        features = len(taps) * target.config.hidden_size
        self.state = LaneState(target, cache, width, features, draft.shape.size if draft else 0)
        self.draft = draft
        self.extend: Step | None = None
        self.fill: Step | None = None
        if draft is not None:
            draft.allocate(self.state)
        self._verify: dict[Processing, Step] = {}

    @torch.inference_mode()
    def verify(self, processing: Processing) -> Step:
        """The round of that kind of processing, captured; with it the drafter's steps."""
        if processing not in self._verify:
            self.state.length.zero_()  # so that nothing is written outside the cache
            step = VerifyStep(self.target, self.state, processing, self.attention, self.taps)
            self._verify[processing] = self._repeatable(step)
        if self.draft is not None and self.fill is None:
            self.extend = self._repeatable(self.draft.extend)
            self.fill = self._repeatable(self.draft.fill)
        return self._verify[processing]

    def _repeatable(self, step: Step) -> Step:
        self.state.upload([], [])
        self.state.length.zero_()
        self.state.start.zero_()
        return self._capture(step)


class DeviceRounds:
    """Rounds on the device for one target.

    Args:
        width: rows of every pass, of both lanes.
        costs: of passes of that width, and of the one-row graph.
        remark: why another attention was not taken, in a sentence.
        filters: whether filters can be captured on this device.

    Attributes:
        kept: at most this many sets of buffers and graphs stay; a set for each lane, capacity and
            drafter.
    """

    kept = 8

    def __init__(
        self,
        target: Target,
        attention: Attention,
        capture: Capture,
        width: int,
        costs: CostModel | None = None,
        remark: str = "",
        filters: bool = True,
    ):
        self.remark, self.filters = remark, filters
        self.target, self.attention, self.capture, self.width = target, attention, capture, width
        self.costs = costs or CostModel({1: 1.0, width: 1.0}, 1.0, [width])
        self._caches: dict[tuple[LaneName, int], KVCache] = {}
        self._lanes: dict[tuple[object, ...], LaneGraphs] = {}

    def refuses(self, request: Request) -> str:
        """Why this request runs on lanes whose host decides, in a sentence; "" if it need not."""
        if request.rule != "match" and not request.sampling.greedy:
            return f"The rule {request.rule} draws its own random numbers on the host."
        if "cascade" in (
            getattr(p, "verify", "") for p in (request.params, request.against_params)
        ):
            return "Cascade attention is not part of a captured round."
        if Processing.of(request.sampling).filters and not self.filters:
            return "Top-k, top-p and min-p cannot be captured on this GPU."
        nodes = request.params.most_nodes()
        if nodes >= max(WIDTHS[-1], self.costs.max_rows):  # which a lane of the host may verify
            return (
                f"A draft may have {nodes} nodes and a captured round verifies"
                f" {self.costs.max_rows - 1}."
            )
        return ""

    def lane(
        self,
        name: LaneName,
        capacity: int,
        taps: tuple[int, ...] = (),
        draft: DraftSteps | None = None,
    ) -> LaneGraphs:
        """Buffers and graphs of that lane, those of an earlier race where they fit."""
        slots = slots_for(capacity)
        key = (name, slots, taps, *_identity(draft))
        if key not in self._lanes:
            while len(self._lanes) >= self.kept:
                self._lanes.pop(next(iter(self._lanes)))
                used = {key[:2] for key in self._lanes}
                self._caches = {key: one for key, one in self._caches.items() if key in used}
            self._lanes[key] = LaneGraphs(
                self.target,
                self._cache(name, slots),
                self.width,
                self.attention,
                self.capture,
                taps,
                draft,
            )
        self._lanes[key] = self._lanes.pop(key)  # the last used goes last
        return self._lanes[key]

    def _cache(self, name: LaneName, slots: int) -> KVCache:
        """The lane's keys and values, shared by all its sets of that capacity."""
        t = self.target
        if (name, slots) not in self._caches:
            self._caches[name, slots] = KVCache(
                len(t.layers), t.shape.kv_heads, slots, t.shape.head_dim, t.dtype, t.device
            )
        return self._caches[name, slots]


def _identity(draft: DraftSteps | None) -> tuple[object, ...]:
    """What distinguishes drafters' graphs; the network itself, so that it lives as long."""
    if draft is None:
        return ()
    return (draft.context.net, draft.gamma, draft.shape, draft.markov_head)


class Marks:
    """Moments in the device's stream, and the one wait of a round."""

    def __init__(self, device: torch.device, count: int):
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(count)]
            if device.type == "cuda"
            else None
        )
        self._times = [math.nan] * count
        self._last = 0

    def mark(self, number: int) -> None:
        """Everything queued so far lies before mark ``number``."""
        self._last = number
        if self._events is None:
            self._times[number] = time.perf_counter()
        else:
            self._events[number].record()

    def wait(self) -> None:
        """Until the device has reached the last mark that was set."""
        if self._events is not None:
            self._events[self._last].synchronize()

    def seconds(self, first: int, last: int) -> float:
        """Of the device between two marks that it has reached."""
        if self._events is None:
            return self._times[last] - self._times[first]
        return self._events[first].elapsed_time(self._events[last]) / 1e3


def median_ms(device: torch.device, step: Callable[[], None], repeats: int) -> float:
    """Median milliseconds of ``step`` in the device's own time."""
    marks, samples = Marks(device, 2), []
    step()
    for _ in range(repeats):
        marks.mark(0)
        step()
        marks.mark(1)
        marks.wait()
        samples.append(marks.seconds(0, 1) * 1e3)
    return sorted(samples)[len(samples) // 2]
