"""What a client of one engine does, and the steps it reads out of a stream."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import UserError
from ..events import UNNAMED
from ..request import Request
from .wire import Endpoint, Line

LAST_ID = 2**31


@dataclass(frozen=True)
class Piece:
    """One token, or as much text as one chunk brought where tokens cannot be told apart."""

    text: str
    id: int = UNNAMED


@dataclass
class Step:
    """One pass of the target, as far as the stream tells passes apart; the first is the prefill's.

    Attributes:
        drafted, accepted: drafts of this pass; None where the stream does not say.
        clock: seconds since the first token on the engine's own clock, where it has one.
        arrived: seconds since the request was sent.
        text: of all pieces, where the engine sends it in one and they are still without text.
    """

    pieces: list[Piece]
    drafted: int | None = None
    accepted: int | None = None
    clock: float | None = None
    arrived: float = 0.0
    text: str = ""


@dataclass
class Tail:
    """What the end of an answer tells.

    Attributes:
        finish: the engine's reason, empty where the answer broke off.
        tokens: of the whole answer, as the engine counts them.
        rounds, drafted, accepted: totals of the speculation.
        per_pass: (drafted, accepted) of the passes that drafted, in order.
        ttft: seconds to the first token on the engine's own clock.
        cached: tokens of the prompt that came from a cache.
        counts_tokens: whether one piece is one token.
    """

    finish: str = ""
    tokens: int | None = None
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    per_pass: list[tuple[int, int]] | None = None
    ttft: float | None = None
    cached: int = 0
    prompt_tokens: int = 0
    counts_tokens: bool = True


@dataclass(frozen=True)
class Facts:
    """What an endpoint says of itself; ``speculates`` and ``slots``, how many answers it writes at
    once, are None where it does not tell.
    """

    version: str = ""
    speculates: bool | None = None
    slots: int | None = None


@dataclass(frozen=True)
class Counters:
    """An endpoint's own totals since its start; None where it does not count them."""

    rounds: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    by_position: dict[int, float] = field(default_factory=dict)
    running: float | None = None


class EngineClient(Protocol):
    """One engine.

    Attributes:
        live: whether a stream tells each pass as it comes, drafts and all.
    """

    live: bool

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        """Raises UserError: it does not answer, or does not serve ``model``."""

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        """Path and body of a streamed answer. Raises UserError: it cannot be asked so."""

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        """Steps as soon as they are complete, then one ``Tail``."""

    def counters(self, endpoint: Endpoint) -> Counters | None:
        """None where the endpoint does not count."""


# -- reading what comes from outside ---------------------------------------------------------------


def number(value: Any) -> float | None:
    """A finite number of at least 0, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def count(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and found < LAST_ID else None


def text_of(value: Any) -> str:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def ids_of(value: Any) -> list[int]:
    """Token ids; what is none is unnamed."""
    found = [count(i) for i in value] if isinstance(value, list) else []
    return [UNNAMED if i is None else i for i in found]


def record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def first(value: Any) -> dict[str, Any]:
    return record(value[0]) if isinstance(value, list) and value else {}


def chat_delta(data: dict[str, Any]) -> str:
    """The text of a chat chunk, a reasoning part's too."""
    delta = record(first(data.get("choices")).get("delta"))
    for name in ("content", "reasoning_content", "reasoning"):
        if text := text_of(delta.get(name)):
            return text
    return ""


def finish_of(data: dict[str, Any]) -> str:
    return text_of(first(data.get("choices")).get("finish_reason"))


def chunk_step(tail: Tail, ids: list[int], text: str, arrived: float) -> Iterator[Step]:
    """The step of a chunk with these tokens and this text, if it has any; ``tail`` learns whether
    tokens are counted, which a chunk of text alone does not do.
    """
    if ids or text:
        tail.counts_tokens = tail.counts_tokens and bool(ids)
        yield Step([Piece("", i) for i in ids] or [Piece(text)], arrived=arrived, text=text)


def read_usage(tail: Tail, data: dict[str, Any]) -> None:
    """What an OpenAI answer's last chunk counts."""
    if usage := record(data.get("usage")):
        tail.tokens = count(usage.get("completion_tokens"))
        tail.prompt_tokens = count(usage.get("prompt_tokens")) or 0
        details = record(usage.get("prompt_tokens_details"))
        tail.cached = count(details.get("cached_tokens")) or 0


def version_of(endpoint: Endpoint) -> str:
    """What ``/version`` says; empty where there is no such page."""
    return text_of(record(endpoint.get("/version").data).get("version"))[:40]


def messages(request: Request) -> list[dict[str, str]]:
    return [{"role": "user", "content": request.prompt}]


def check_model(endpoint: Endpoint, model: str) -> str:
    """The name under which the endpoint serves its model, which is ``model`` where one is given.

    Raises:
        UserError: it serves another one.
    """
    data = endpoint.found(endpoint.get("/v1/models")).data
    entries = record(data).get("data")
    served = [text_of(record(e).get("id")) for e in entries] if isinstance(entries, list) else []
    if model and model not in served:
        raise endpoint.say(
            f"does not serve “{model}”; correct “model” in models.yaml to the name that its"
            " /v1/models tells."
        )
    if not model and not (served and served[0]):
        raise endpoint.say("names no model at /v1/models; correct “kind” in models.yaml.")
    return model or served[0]


_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_POSITION = re.compile(r'position="(\d+)"')


def metrics(endpoint: Endpoint, path: str) -> dict[str, dict[str, float]] | None:
    """Name -> label ``position`` (or nothing) -> value, summed over all other labels; None where
    the endpoint has no such page.
    """
    reply = endpoint.get(path)
    if reply.status != 200:
        return None
    found: dict[str, dict[str, float]] = {}
    for line in reply.text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, text = match.groups()
        try:
            value = number(float(text))
        except ValueError:
            continue
        if value is not None:
            position = _POSITION.search(labels or "")
            values = found.setdefault(name, {})
            key = position[1] if position else ""
            values[key] = values.get(key, 0.0) + value
    return found


def spec_counters(endpoint: Endpoint, prefix: str, running: str) -> Counters | None:
    """Counters of the engines that name them as vLLM does."""
    found = metrics(endpoint, "/metrics")
    if found is None:
        return None

    def total(name: str) -> float | None:
        values = found.get(f"{prefix}:spec_decode_num_{name}_total")
        return sum(values.values()) if values is not None else None

    positions = found.get(f"{prefix}:spec_decode_num_accepted_tokens_per_pos_total", {})
    at_work = found.get(running)
    return Counters(
        rounds=total("drafts"),
        drafted=total("draft_tokens"),
        accepted=total("accepted_tokens"),
        by_position={int(k): v for k, v in positions.items() if k.isdecimal() and len(k) < 5},
        running=sum(at_work.values()) if at_work is not None else None,
    )


def openai_body(request: Request, model: str) -> dict[str, Any]:
    """The fields that every OpenAI endpoint takes; those that are off are left out."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": messages(request),
        "stream": True,
        "max_tokens": request.max_new_tokens,
        "temperature": 0 if sampling.greedy else sampling.temperature,
    }
    if not sampling.greedy and sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def refuse_options(request: Request, engine: str, *names: str) -> None:
    """Raises UserError where one of these sampling options, which the engine does not take, is
    on.
    """
    off = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "top_p": 1.0}
    for name in names:
        if getattr(request.sampling, name) != off[name]:
            raise UserError(
                f"{engine} does not take {name} here; leave it at {off[name]:g}, which is off."
            )
