"""TensorRT-LLM 1.3 and 1.4rc (read, not run): a chunk holds an iteration's tokens; only a running
average of tokens per iteration is told. It refuses fields that it does not know.
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
    chat_delta,
    check_model,
    chunk_step,
    finish_of,
    first,
    ids_of,
    metrics,
    number,
    openai_body,
    read_usage,
    version_of,
)
from .wire import Endpoint, Line

METRICS = "/prometheus/metrics"  # "/metrics" is emptied by reading it


class TrtLlm:
    live = False

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        check_model(endpoint, model)
        found = metrics(endpoint, METRICS) or {}
        # absent also where such metrics are switched off
        told = any(name.startswith("trtllm_spec") for name in found)
        return Facts(version_of(endpoint), True if told else None)

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        sampling = request.sampling
        body = openai_body(request, check_model(endpoint, model)) | {
            "stream_options": {"include_usage": True},
            "seed": sampling.seed,
        }
        if not sampling.greedy:
            body |= {"top_k": sampling.top_k} if sampling.top_k else {}
            body |= {"min_p": sampling.min_p} if sampling.min_p else {}
        if sampling.repetition_penalty != 1:
            body["repetition_penalty"] = sampling.repetition_penalty
        return "/v1/chat/completions", body

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        tail, average = Tail(), None
        for arrived, data in lines:
            choice = first(data.get("choices"))
            yield from chunk_step(tail, ids_of(choice.get("token_ids")), chat_delta(data), arrived)
            running = number(choice.get("avg_decoded_tokens_per_iter"))
            average = running if running else average
            tail.finish = finish_of(data) or tail.finish
            read_usage(tail, data)
        if average and tail.tokens:
            tail.rounds = max(0, round(tail.tokens / average) - 1)  # the first one is the prefill
        yield tail

    def counters(self, endpoint: Endpoint) -> Counters | None:
        found = metrics(endpoint, METRICS)
        if found is None:
            return None
        drafted, accepted = (
            found.get(f"trtllm_spec_decode_num_{name}_tokens_total")
            for name in ("draft", "accepted")
        )
        return Counters(
            drafted=sum(drafted.values()) if drafted is not None else None,
            accepted=sum(accepted.values()) if accepted is not None else None,
        )
