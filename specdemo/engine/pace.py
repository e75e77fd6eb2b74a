"""How fast passes are while races run: fewer threads beside other work, and costs that follow what
races measured.

With a thread on every core, each of a pass's many fork-joins waits for the thread that shares its
core with another busy process: measured on two cores, a pass takes up to 25 times as long, and one
thread's pass hardly longer than alone. A pass has the same bits with any number of threads that
:func:`.calibrate.calibrate` gives a curve, so threads may change in the middle of a race.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..hardware import OtherWork
from .cost import CostModel, Measured

SLOW, TWICE = 2.5, 2  # passes slower than this times their curve, so often running, mean company
QUIET = 0.3  # cores that others may keep busy while all threads compute
FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0  # seconds with fewer threads before more are tried again
BLIND_WAIT = 10.0  # the least of it where the system does not say what else runs


@dataclass(frozen=True)
class Pass:
    """A pass of the target in a race: its rows, what it took and what the costs in force say."""

    width: int
    ms: float
    expected_ms: float
    threads: int


class Pace:
    """The number of threads in force, and the costs of passes with it.

    Args:
        measured: costs with each number of threads that passes may take.
        other_work: what else the machine does. set_threads: makes that many compute from now on.
        now: seconds.

    Attributes:
        threads: in force; ``most``: where nothing else runs.
        undisturbed: the least costs known, by threads: what is worth remembering; ``sure``: they
            were all seen twice.
    """

    def __init__(
        self,
        measured: Measured,
        other_work: OtherWork | None = None,
        set_threads: Callable[[int], None] = torch.set_num_threads,
        now: Callable[[], float] = time.monotonic,
    ):
        self.curves, self.sure = dict(measured.curves), measured.sure
        self.undisturbed = dict(measured.curves)
        self.other_work, self._set_threads, self._now = other_work or OtherWork(), set_threads, now
        self.threads = self.most = max(self.curves)
        self._passes: list[Pass] = []
        self._slow = self._with_fewer = 0
        self._since, self._returned, self._wait = now(), -LONGEST_WAIT, FIRST_WAIT

    @property
    def costs(self) -> CostModel:
        """Of passes with the threads in force."""
        return self.curves[self.threads]

    def begin(self) -> None:
        """A race begins."""
        self._passes, self._slow, self._with_fewer = [], 0, 0
        self.rest()

    def rest(self) -> None:
        """Between two passes: all threads again, once the others' work is over."""
        waited = self._now() - self._since
        if self.threads == self.most or waited < self._wait:
            return
        busy = self.other_work.cores()
        if busy is None and waited < BLIND_WAIT:
            return
        if busy is None or busy < QUIET:
            self._returned = self._now()
            self._use(self.most)
        else:
            self._since = self._now()

    def note(self, width: int, ms: float, expected_ms: float) -> None:
        """A pass is done. Where two running took much longer than expected, fewer threads compute
        from now on.
        """
        self._passes.append(Pass(width, ms, expected_ms, self.threads))
        self._with_fewer += self.threads < self.most
        self._slow = self._slow + 1 if ms > SLOW * expected_ms else 0
        fewer = [threads for threads in self.curves if threads < self.threads]
        if self._slow < TWICE or not fewer:
            return
        del self._passes[-TWICE:]  # these tell of the others, not of the costs
        soon = self._now() - self._returned < LONGEST_WAIT
        self._wait = min(2 * self._wait, LONGEST_WAIT) if soon else FIRST_WAIT
        self._use(max(fewer))

    def end(self) -> bool:
        """A race is over: the costs follow its passes. Whether ``undisturbed`` is less now."""
        ratios: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in self._passes:
            ratios[one.threads][one.width].append(one.ms / one.expected_ms)
        better = False
        for threads, by_width in ratios.items():
            self.curves[threads] = self.curves[threads].corrected(by_width)
            least = self.undisturbed[threads].least(self.curves[threads])
            better |= least != self.undisturbed[threads]
            self.undisturbed[threads] = least
        self._passes = []
        return better

    def learn(self, again: Measured) -> bool:
        """Costs were measured once more: the least of each counts. Whether that is news."""
        better = again.sure != self.sure
        for threads, costs in self.undisturbed.items():
            least = costs.least(again.curves[threads]) if threads in again.curves else costs
            if least != costs:
                better, self.curves[threads], self.undisturbed[threads] = True, least, least
        self.sure = again.sure
        return better

    def remark(self) -> str | None:
        """A sentence on the race's passes with fewer threads, if there were any."""
        if not self._with_fewer:
            return None
        passes = "One pass" if self._with_fewer == 1 else f"{self._with_fewer} passes"
        return (
            f"{passes} of the target ran on fewer threads than the {self.most} there are, because"
            " other programs keep this machine busy; the bits are the same."
        )

    def _use(self, threads: int) -> None:
        self.threads, self._slow, self._since = threads, 0, self._now()
        self._set_threads(threads)
        self.other_work.start()
