"""llama.cpp's own server (b11434, b11549): every token is a chunk, ``timings`` tell each pass.

All tokens of a pass carry the same ``predicted_ms``; the differences of ``draft_n`` and
``draft_n_accepted`` are that pass's. A token that ends inside a character has no chunk, only
``predicted_n`` jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..request import Request
from .client import (
    Counters,
    Facts,
    Piece,
    Step,
    Tail,
    chat_delta,
    check_model,
    count,
    finish_of,
    first,
    ids_of,
    messages,
    number,
    record,
    spec_counters,
    text_of,
)
from .wire import Endpoint, Line

LAST_N = 65_536  # the whole text counts for the repetition penalty; it takes no -1


class LlamaCpp:
    live = True

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        check_model(endpoint, model)
        slots = endpoint.get("/slots").data  # 501 where it is switched off
        slot = first(slots)
        props = record(endpoint.get("/props").data)
        build = text_of(props.get("build_info"))
        known = build.startswith("b") and not build.startswith("b0") and build.isascii()
        speculates = slot.get("speculative")
        return Facts(
            version=build.split("-")[0] if known else "",
            speculates=speculates if isinstance(speculates, bool) else None,
            slots=(len(slots) if isinstance(slots, list) else count(props.get("total_slots")))
            or None,
        )

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        sampling = request.sampling
        templated = endpoint.found(
            endpoint.post("/apply-template", {"messages": messages(request)})
        )
        body: dict[str, Any] = {
            "prompt": text_of(record(templated.data).get("prompt")),
            "stream": True,
            "n_predict": request.max_new_tokens,
            "timings_per_token": True,
            "return_tokens": True,
            "cache_prompt": False,
            "seed": sampling.seed,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repetition_penalty,
            "repeat_last_n": LAST_N,
            "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
        }
        if request.stop:
            body["stop"] = list(request.stop)
        return "/completion", body

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        passes, tail = _Passes(), Tail()
        for line in lines:
            timings = record(line.data.get("timings"))
            written = count(timings.get("predicted_n"))
            text, ids = _token(line.data)
            if timings and written and written > passes.written:
                yield from passes.add(line, timings, written, text, ids)
            elif text:  # a stop string that did not come after all, or the rest of a character
                passes.append_text(text)
            passes.finish(line.data, timings, tail)
        yield from passes.flush()
        tail.drafted, tail.accepted = passes.drafted, passes.accepted
        tail.tokens = passes.written
        yield tail

    def counters(self, endpoint: Endpoint) -> Counters | None:
        return spec_counters(endpoint, "llamacpp", "llamacpp:requests_processing")


def _token(data: dict[str, Any]) -> tuple[str, list[int]]:
    """Text and ids of a chunk of ``/completion`` or of a chat."""
    if "content" in data:
        return text_of(data["content"]), ids_of(data.get("tokens"))
    logprobs = record(first(data.get("choices")).get("logprobs")).get("content")
    ids = [record(entry).get("id") for entry in logprobs] if isinstance(logprobs, list) else []
    return chat_delta(data), ids_of(ids)


class _Passes:
    """Tokens of the pass under way, and the engine's running totals."""

    def __init__(self) -> None:
        self.step: Step | None = None
        self.written = self.drafted = self.accepted = 0
        self.origin = self.at = 0.0  # milliseconds on the engine's clock

    def add(
        self, line: Line, timings: dict[str, Any], written: int, text: str, ids: list[int]
    ) -> Iterator[Step]:
        missing, self.written = written - self.written - 1, written
        at = number(timings.get("predicted_ms")) or 0.0
        if self.step is None or at > self.at:
            if self.step is not None:
                # what the last pass accepted and did not show ended inside a character
                owed = max(0, (self.step.accepted or 0) + 1 - len(self.step.pieces))
                self.step.pieces += [Piece("")] * min(missing, owed)
                missing -= min(missing, owed)
            yield from self.flush()
            self._begin(line, timings, at)
        assert self.step is not None
        self.step.pieces += [Piece("")] * missing
        self.step.pieces.append(Piece(text, ids[-1] if ids else -1))

    def _begin(self, line: Line, timings: dict[str, Any], at: float) -> None:
        drafted = max(self.drafted, count(timings.get("draft_n")) or 0)
        accepted = max(self.accepted, count(timings.get("draft_n_accepted")) or 0)
        if self.written == 1:
            self.origin = at
        self.at = at
        self.step = Step(
            [],
            drafted=drafted - self.drafted,
            accepted=accepted - self.accepted,
            clock=max(0.0, at - self.origin) / 1e3,
            arrived=line.arrived,
        )
        self.drafted, self.accepted = drafted, accepted

    def append_text(self, text: str) -> None:
        if self.step is not None and self.step.pieces:
            last = self.step.pieces[-1]
            self.step.pieces[-1] = Piece(last.text + text, last.id)

    def flush(self) -> Iterator[Step]:
        if self.step is not None:
            yield self.step
        self.step = None

    def finish(self, data: dict[str, Any], timings: dict[str, Any], tail: Tail) -> None:
        """What a chunk tells of the whole."""
        if timings:
            milliseconds = number(timings.get("prompt_ms"))
            tail.ttft = None if milliseconds is None else milliseconds / 1e3
            tail.cached = count(timings.get("cache_n")) or 0
            tail.prompt_tokens = tail.cached + (count(timings.get("prompt_n")) or 0)
        if data.get("stop") is True:
            tail.finish = "length" if data.get("stop_type") == "limit" else "stop"
        tail.finish = finish_of(data) or tail.finish
