"""A race on a serving engine: both endpoints asked, one after the other, told in clock order."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from .. import __version__
from ..errors import UserError
from ..events import Event, LaneName, PrefillProgress, Start
from ..models.served import METHOD, EngineKind, Served
from ..request import Request
from .client import EngineClient, Facts, Step
from .compare import finished
from .identify import other_kind
from .llamacpp import LlamaCpp
from .settle import settle
from .sglang import Sglang
from .tell import Log, Teller
from .transformers import Transformers
from .trtllm import TrtLlm
from .vllm import Vllm
from .wire import Endpoint, Line, Refused, Silent

CLIENTS: dict[EngineKind, type[EngineClient]] = {
    "llama.cpp": LlamaCpp,
    "vllm": Vllm,
    "sglang": Sglang,
    "trtllm": TrtLlm,
    "transformers": Transformers,
}
PROGRESS = 0.5  # seconds between two sentences about a lane that is told later


@dataclass(frozen=True)
class Attached:
    """An engine that has been asked what it is, and how many answers it writes at once."""

    pair: str
    served: Served
    client: EngineClient
    plain: Endpoint
    speculative: Endpoint
    facts: Facts
    slots: int | None = None

    @property
    def title(self) -> str:
        return " ".join(filter(None, [self.served.title, self.facts.version]))


def attach(pair: str, served: Served) -> Attached:
    """Ask both endpoints what they are.

    Raises:
        UserError: one does not answer, serves another model, or is not what it should be.
    """
    client, key = CLIENTS[served.kind](), served.key()
    plain = Endpoint("plain", served.plain, key)
    speculative = Endpoint("speculative", served.speculative, key)
    first = _checked(client, plain, served)
    if first.speculates and served.plain != served.speculative:
        raise plain.say("speculates too, so there is nothing to compare; start it without.")
    facts = _checked(client, speculative, served)
    if facts.speculates is not True and (other := other_kind(speculative, served.kind)):
        raise other
    if facts.speculates is False:
        raise speculative.say(
            "does not speculate; start it with a drafter (“python -m specdemo serve-example” prints"
            " how), or correct models.yaml."
        )
    slots = min((n for n in (first.slots, facts.slots) if n is not None), default=None)
    return Attached(pair, served, client, plain, speculative, facts, slots)


def _checked(client: EngineClient, endpoint: Endpoint, served: Served) -> Facts:
    """Raises UserError: it is not what it should be, with what it is where that can be told."""
    try:
        return client.check(endpoint, served.model)
    except Silent:
        raise
    except UserError as error:
        raise other_kind(endpoint, served.kind) or error from None


def refuse(request: Request) -> None:
    """Raises UserError: no serving engine can be asked for that."""
    if request.rule != "match":
        raise UserError(
            f"A serving engine has its own way to accept; the rule “{request.rule}” cannot be asked"
            " for. Choose match."
        )
    if request.against:
        raise UserError(
            "A serving engine drafts in its own way alone, so there is no second method for the"
            " left lane; choose plain decoding for it, or a pair that runs here."
        )
    if request.check:
        raise UserError(
            "A serving engine shows no logits to check; leave --check out, or race on a pair that"
            " runs here."
        )


def race(
    attached: Attached, request: Request, cancel: threading.Event | None = None
) -> Iterator[Event]:
    """Events of one race: ``Start``, progress of lanes that are told later, then both lanes in the
    order of their clocks, and ``Done``. Stop, or closing the generator, closes the connections,
    which frees the engine's slots.

    Raises:
        UserError: before anything runs, or where an endpoint broke off, behind what had come.
    """
    refuse(request)
    run = _Run(attached, request, cancel or threading.Event())
    yield Start(
        prompt=request.prompt,
        pair=attached.pair,
        method=METHOD,
        sampling=request.sampling.to_dict(),
        max_new_tokens=request.max_new_tokens,
        hardware=f"served by {attached.title}",
        versions={"specdemo": __version__},
        weights=attached.served.drafts,
        engine=attached.title,
    )
    yield from run.events()


class _Run:
    """One race under way."""

    def __init__(self, attached: Attached, request: Request, cancel: threading.Event):
        self.attached, self.request, self.cancel = attached, request, cancel
        self.logs: dict[LaneName, Log] = {}
        self.teller = Teller()

    def events(self) -> Iterator[Event]:
        wanted, client = self.request.lanes, self.attached.client
        before = client.counters(self.attached.speculative) if wanted != "ar" else None
        together = self.attached.served.together and wanted == "both"
        if together:
            yield from self._both()
        elif wanted != "spec":
            yield from self._collect("ar")
        waiting = list(self.teller.plain(self.logs["ar"])) if "ar" in self.logs else []
        if wanted != "ar" and (together or not self._broken()):
            if not together and client.live:
                yield from self._live(waiting)
            else:
                if not together:
                    yield from self._collect("spec")
                yield from self._tell(waiting)
        while waiting:
            yield waiting.pop(0)[1]
        for log in self.logs.values():
            if log.error is not None:
                raise log.error
        yield finished(self.attached, self.request, self.logs, before)

    def _broken(self) -> bool:
        return self.cancel.is_set() or any(log.error for log in self.logs.values())

    def _steps(self, lane: LaneName, log: Log) -> Iterator[Step]:
        """Steps of one lane as they come; what ends it before its time is kept in ``log``."""
        self.logs[lane] = log
        attached, speculative = self.attached, lane == "spec"
        endpoint = attached.speculative if speculative else attached.plain
        try:
            path, body = attached.client.call(
                endpoint, self.request, attached.served.model, speculative
            )
            with closing(_until_broken(endpoint.stream(path, body, self.cancel), log)) as lines:
                for found in attached.client.read(lines, speculative):
                    if not isinstance(found, Step):
                        log.tail = found
                    elif found.pieces:
                        log.steps.append(found)
                        yield found
        except UserError as error:
            log.error = error
        if self.cancel.is_set():
            log.stopped, log.error = True, None
        elif log.error is None and log.tail.finish and not log.steps:
            log.error = Refused(str(endpoint.say("answered with no token; ask something else.")))
        elif log.error is None and not log.tail.finish:
            log.error = endpoint.say(
                "ended its answer in the middle; what had come is kept. Look at its log, then try"
                " again."
            )
        if not speculative and log.tail.drafted:
            log.error = endpoint.say("speculates too, so there is nothing to compare; start it"
                " without.")  # fmt: skip

    def _collect(self, lane: LaneName, log: Log | None = None) -> Iterator[Event]:
        """Read one lane to its end; only its progress is told."""
        log, said = log or Log(), 0.0
        for _ in self._steps(lane, log):
            if time.monotonic() > said + PROGRESS:
                said = time.monotonic()
                yield PrefillProgress(
                    min(len(log.pieces), self.request.max_new_tokens),
                    self.request.max_new_tokens,
                    lane,
                )

    def _both(self) -> Iterator[Event]:
        """Both lanes at the same time, each endpoint on a machine of its own."""
        log = Log()

        def plain() -> None:
            for _ in self._steps("ar", log):
                pass

        thread = threading.Thread(target=plain, daemon=True)
        thread.start()
        yield from self._collect("spec")
        thread.join()
        self.logs = {"ar": log, "spec": self.logs["spec"]}

    def _live(self, waiting: list[tuple[float, Event]]) -> Iterator[Event]:
        """The speculative lane as it comes, beside what the plain lane had by then."""
        log = Log()
        for step in self._steps("spec", log):
            yield from self._round(log, step, waiting)
        log.sure = settle(log.steps, log.tail)

    def _tell(self, waiting: list[tuple[float, Event]]) -> Iterator[Event]:
        """The speculative lane, once it is known what its rounds drafted."""
        log = self.logs["spec"]
        log.sure = settle(log.steps, log.tail)
        for step in log.steps:
            yield from self._round(log, step, waiting)

    def _round(self, log: Log, step: Step, waiting: list[tuple[float, Event]]) -> Iterator[Event]:
        clock = log.clock(step)
        while waiting and waiting[0][0] <= clock:
            yield waiting.pop(0)[1]
        if step is log.steps[0]:
            yield from self.teller.first(step, log.ttft, clock)
        else:
            yield from self.teller.next(step, clock)


def _until_broken(lines: Generator[Line, None, None], log: Log) -> Generator[Line, None, None]:
    """``lines``; an endpoint that breaks off ends them, so that what had come is read whole."""
    try:
        with closing(lines):
            yield from lines
    except UserError as error:
        log.error = error


def answer(attached: Attached, request: Request, lane: LaneName, cancel: threading.Event) -> Log:
    """One endpoint's whole answer; what ended it before its time is in ``Log.error``."""
    run, log = _Run(attached, request, cancel), Log()
    for _ in run._steps(lane, log):
        pass
    if lane == "spec":
        log.sure = settle(log.steps, log.tail)
    return log
