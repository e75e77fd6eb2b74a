"""vLLM 0.32: one chunk is one pass unless chunks were merged; what each pass drafted and kept comes
at the end, with ``--per-request-spec-decode-metrics detailed``, of the passes that drafted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from ..request import Request
from .client import (
    Counters,
    Facts,
    Step,
    Tail,
    chat_delta,
    check_model,
    chunk_step,
    count,
    finish_of,
    first,
    ids_of,
    metrics,
    number,
    openai_body,
    read_usage,
    record,
    refuse_options,
    spec_counters,
    version_of,
)
from .wire import Endpoint, Line


class Vllm:
    live = False

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        check_model(endpoint, model)
        found = metrics(endpoint, "/metrics")
        # a server that does not speculate has no such counter
        speculates = None if found is None else any("vllm:spec_decode_" in name for name in found)
        return Facts(version_of(endpoint), speculates)

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        refuse_options(request, "vLLM with speculation", "min_p")
        sampling = request.sampling
        body = openai_body(request, check_model(endpoint, model)) | {
            "seed": sampling.seed,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
            "cache_salt": uuid.uuid4().hex,  # no prefix of an earlier request
        }
        if sampling.top_k and not sampling.greedy:
            body["top_k"] = sampling.top_k
        if sampling.repetition_penalty != 1:
            body["repetition_penalty"] = sampling.repetition_penalty
        return "/v1/chat/completions", body

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        tail = Tail()
        for arrived, data in lines:
            ids = ids_of(first(data.get("choices")).get("token_ids"))
            yield from chunk_step(tail, ids, chat_delta(data), arrived)  # no ids: it is too old
            tail.finish = finish_of(data) or tail.finish
            read_usage(tail, data)
            if found := record(data.get("metrics")):
                _speculation(tail, found)
        yield tail

    def counters(self, endpoint: Endpoint) -> Counters | None:
        return spec_counters(endpoint, "vllm", "vllm:num_requests_running")


def _speculation(tail: Tail, found: dict[str, Any]) -> None:
    ttft = number(found.get("time_to_first_token_ms"))
    tail.ttft = None if ttft is None else ttft / 1e3
    told = record(found.get("speculative_decoding"))
    tail.rounds = count(told.get("num_spec_steps"))
    tail.drafted = count(told.get("num_draft_tokens"))
    tail.accepted = count(told.get("num_accepted_draft_tokens"))
    drafted, accepted = told.get("per_step_drafted"), told.get("per_step_accepted")
    if isinstance(drafted, list) and isinstance(accepted, list) and len(drafted) == len(accepted):
        pairs = [(count(d), count(a)) for d, a in zip(drafted, accepted, strict=True)]
        known = [(d, a) for d, a in pairs if d is not None and a is not None and a <= d]
        tail.per_pass = known if len(known) == len(pairs) else None
