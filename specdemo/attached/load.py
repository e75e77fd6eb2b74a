"""Both endpoints under load: several streams at once, as an operator has them. The engines batch;
this only asks and measures.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UserError
from ..events import LaneName
from ..request import Request
from .race import Attached, answer
from .tell import Log

LEVELS = (1, 2, 4, 8, 16, 32)
ROUNDS = 2  # answers of each stream at one level
FAR = 0.75  # of the rate with fewer streams: a batch writes more in all, never so much less


@dataclass(frozen=True)
class Level:
    """One endpoint at one number of streams.

    Attributes:
        tokens_per_second: of all streams together, from the first request to the last token.
        ttft, itl: (median, 95th percentile) of the seconds to the first token, and of those between
            two tokens; a chunk's time is shared by its tokens.
        accepted: accepted drafts of the drafted ones, where the engine tells them.
        failed: answers that broke off and are in no figure; ``why`` is the first one's sentence.
    """

    endpoint: LaneName
    streams: int
    answers: int
    tokens: int
    seconds: float
    tokens_per_second: float
    ttft: tuple[float, float] | None
    itl: tuple[float, float] | None
    accepted: float | None
    failed: int = 0
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_load(
    attached: Attached,
    requests: Sequence[Request],
    levels: Sequence[int],
    cancel: threading.Event | None = None,
) -> Iterator[Level]:
    """A level of either endpoint at a time, the plain one first on every other level, after one
    answer of each outside the figures.

    Raises:
        UserError: an endpoint does not answer at all, or does not count tokens.
    """
    stop = cancel or threading.Event()
    lanes: tuple[LaneName, LaneName] = ("ar", "spec")
    for lane in lanes:
        log = answer(attached, requests[0], lane, stop)
        if log.error is not None:
            raise log.error
        if log.tokens is None:
            raise UserError(
                f"{attached.title} counts no tokens when it drafts, so its rate cannot be told; use"
                " another engine."
            )
    for number, streams in enumerate(levels):
        for lane in lanes if number % 2 == 0 else lanes[::-1]:
            if stop.is_set():
                return
            yield _level(attached, requests, lane, streams, stop)


def _level(
    attached: Attached,
    requests: Sequence[Request],
    lane: LaneName,
    streams: int,
    stop: threading.Event,
) -> Level:
    todo = itertools.islice(itertools.cycle(requests), streams * ROUNDS)
    lock, logs = threading.Lock(), list[Log]()

    def work() -> None:
        while not stop.is_set():
            with lock:
                request = next(todo, None)
            if request is None:
                return
            log = answer(attached, request, lane, stop)
            with lock:
                logs.append(log)

    began = time.perf_counter()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(streams)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: the connections are closed, which frees the engine's slots
        stop.set()
        raise
    return _figures(lane, streams, logs, time.perf_counter() - began)


def _figures(lane: LaneName, streams: int, logs: Sequence[Log], seconds: float) -> Level:
    good = [log for log in logs if log.error is None and not log.stopped and log.steps]
    bad = [log.error for log in logs if log.error is not None]
    tokens = sum(log.tokens or 0 for log in good)
    gaps: list[float] = []
    for log in good:
        for before, after in itertools.pairwise(log.steps):
            each = (after.arrived - before.arrived) / max(len(after.pieces), 1)
            gaps += [each] * len(after.pieces)
    told = [(log.tail.drafted, log.accepted) for log in good if log.tail.drafted and lane == "spec"]
    drafted = sum(d or 0 for d, _ in told)
    return Level(
        endpoint=lane,
        streams=streams,
        answers=len(good),
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds if seconds > 0 else 0.0,
        ttft=_percentiles([log.steps[0].arrived for log in good]),
        itl=_percentiles(gaps),
        accepted=sum(a or 0 for _, a in told) / drafted if drafted else None,
        failed=len(bad),
        why=str(bad[0]) if bad else "",
    )


def _percentiles(values: Sequence[float]) -> tuple[float, float] | None:
    """Median and 95th percentile."""
    if not values:
        return None
    if len(values) == 1:
        return values[0], values[0]
    return statistics.median(values), statistics.quantiles(values, n=20, method="inclusive")[-1]


def advice(levels: Sequence[Level]) -> str:
    """At how many streams speculation pays, in a sentence or two, by the whole curve."""
    rates = _rates(levels)
    ratios = [
        (streams, rates["spec", streams] / plain)
        for (lane, streams), plain in sorted(rates.items(), key=lambda item: item[0][1])
        if lane == "ar" and plain and ("spec", streams) in rates
    ]
    if not ratios:
        return "Nothing was measured on both endpoints."
    pays = [streams for streams, ratio in ratios if ratio >= 1]
    lost = [streams for streams, ratio in ratios if ratio < 1]
    most, best = max(ratios, key=lambda pair: pair[1])
    gain = f"At best it wrote {best:.2f} times the tokens per second, with {_streams(most)}."
    if not lost:
        return f"Speculation paid up to {_streams(ratios[-1][0])}, the most measured. {gain}"
    if not pays:
        return f"Speculation did not pay, already with {_streams(lost[0])}. {gain}"
    if max(pays) < min(lost):
        return f"Speculation stopped paying at {_streams(lost[0])}. {gain}"
    return (
        f"Speculation paid with {_listed(pays)} and did not with {_listed(lost)}, so from which"
        f" load on it pays cannot be told: measure again, with nothing else running. {gain}"
    )


def cautions(levels: Sequence[Level], slots: int | None) -> list[str]:
    """Sentences on what makes the curve doubtful.

    Args:
        slots: answers that an endpoint writes at once; None where it does not tell.
    """
    said = []
    most = max((level.streams for level in levels), default=0)
    if slots is not None and slots < most:
        said.append(
            f"An endpoint answers {slots} at a time, so of more streams some waited: start both"
            f" with {most} slots (llama.cpp: -np {most}, and as many times the context)."
        )
    rates = _rates(levels)
    for lane, name in (("ar", "plain"), ("spec", "speculative")):
        curve = [(n, rate) for (of, n), rate in sorted(rates.items()) if of == lane]
        for (few, before), (more, after) in itertools.pairwise(curve):
            if after < FAR * before:
                said.append(
                    f"The {name} endpoint wrote {after:.1f} tokens per second with {_streams(more)}"
                    f" after {before:.1f} with {_streams(few)}: other work on its machine, or fewer"
                    " slots than streams. Ratios there mean little."
                )
    return said


def _rates(levels: Sequence[Level]) -> dict[tuple[LaneName, int], float]:
    return {(level.endpoint, level.streams): level.tokens_per_second for level in levels}


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return _streams(numbers[0])
    return f"{', '.join(map(str, numbers[:-1]))} and {_streams(numbers[-1])}"


def _streams(n: int) -> str:
    return "one stream" if n == 1 else f"{n} streams"
