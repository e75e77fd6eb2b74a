"""SGLang 0.5 (read, not run): native ``/generate``, whose ``text`` and ``output_ids`` are
cumulative unless the server streams increments; totals of the speculation come in the last chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..request import Request
from .client import (
    Counters,
    Facts,
    Step,
    Tail,
    check_model,
    chunk_step,
    count,
    ids_of,
    messages,
    metrics,
    number,
    record,
    text_of,
)
from .wire import Endpoint, Line

# of the newest version first: 0.5.23, an alias of 0.5.15, 0.5.9
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")


class Sglang:
    live = False

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        check_model(endpoint, model)
        told = record(endpoint.get("/server_info").data)
        algorithm = told.get("speculative_algorithm", "")
        speculates = None if algorithm == "" else algorithm is not None
        return Facts(text_of(told.get("version"))[:40], speculates)

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        sampling = request.sampling
        params: dict[str, Any] = {
            "max_new_tokens": request.max_new_tokens,
            "temperature": 0 if sampling.greedy else sampling.temperature,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
        }
        if sampling.top_k:
            params["top_k"] = sampling.top_k
        if request.stop:
            params["stop"] = list(request.stop)
        # the chat form by the engine's own template
        body = {"model": check_model(endpoint, model), "messages": messages(request)}
        reply = endpoint.found(endpoint.post("/tokenize", body | {"add_generation_prompt": True}))
        ids = ids_of(record(reply.data).get("tokens"))
        if not ids or min(ids) < 0:
            raise endpoint.say(
                "does not put a chat into tokens (/tokenize); this version of SGLang is too old."
            )
        return "/generate", {"input_ids": ids, "stream": True, "sampling_params": params}

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        tail, ids_seen, text_seen, cumulative = Tail(), 0, "", None
        for arrived, data in lines:
            meta, ids = record(data.get("meta_info")), ids_of(data.get("output_ids"))
            text, total = text_of(data.get("text")), count(meta.get("completion_tokens"))
            if cumulative is None and ids_seen and ids:
                cumulative = total == len(ids)
            if cumulative or cumulative is None:
                ids = ids[ids_seen:]
                text, text_seen = text.removeprefix(text_seen), text or text_seen
            ids_seen += len(ids)
            yield from chunk_step(tail, ids, text, arrived)
            _finish(tail, meta, total)
        yield tail

    def counters(self, endpoint: Endpoint) -> Counters | None:
        found = metrics(endpoint, "/metrics")
        if found is None:
            return None
        calls, running = (
            found.get(f"sglang:{name}") for name in ("spec_verify_calls_total", "num_running_reqs")
        )
        return Counters(
            rounds=sum(calls.values()) if calls is not None else None,
            running=sum(running.values()) if running is not None else None,
        )


def _first_count(meta: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for name in names if (found := count(meta.get(name))) is not None), None)


def _finish(tail: Tail, meta: dict[str, Any], total: int | None) -> None:
    reason = record(meta.get("finish_reason"))
    tail.finish = text_of(reason.get("type")) or text_of(meta.get("finish_reason")) or tail.finish
    tail.tokens = total if total is not None else tail.tokens
    tail.prompt_tokens = count(meta.get("prompt_tokens")) or tail.prompt_tokens
    tail.cached = count(meta.get("cached_tokens")) or 0
    if (rounds := count(meta.get("spec_verify_ct"))) is not None:
        tail.rounds = rounds
        tail.drafted, tail.accepted = (_first_count(meta, names) for names in (DRAFTED, ACCEPTED))
    latency = number(meta.get("time_to_first_token"))
    tail.ttft = latency if latency is not None else tail.ttft
