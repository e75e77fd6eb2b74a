"""``transformers serve`` 5.24: one endpoint, prompt lookup switched on by the request. A chunk is a
pass; it names no ids, and with lookup its usage counts passes and its finish reason is wrong.
"""

from __future__ import annotations

import json
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
    count,
    finish_of,
    openai_body,
    record,
    refuse_options,
)
from .wire import Endpoint, Line

LOOKED_UP = 4  # tokens that a lookup drafts


class Transformers:
    live = False

    def check(self, endpoint: Endpoint, model: str) -> Facts:
        endpoint.found(endpoint.get("/v1/models"))  # lists what is cached, not what it can serve
        if not model:
            raise endpoint.say("needs “model” in models.yaml, the one that it was started with.")
        return Facts()

    def call(
        self, endpoint: Endpoint, request: Request, model: str, speculative: bool
    ) -> tuple[str, dict[str, Any]]:
        # it has a seed only for a whole server, and refuses unknown fields
        refuse_options(request, "transformers serve", "top_k", "min_p", "repetition_penalty")
        body = openai_body(request, model)
        if speculative:
            body["generation_config"] = json.dumps(
                {
                    "prompt_lookup_num_tokens": LOOKED_UP,
                    "do_sample": not request.sampling.greedy,
                    "max_new_tokens": request.max_new_tokens,
                }
            )
        return "/v1/chat/completions", body

    def read(self, lines: Iterable[Line], speculative: bool) -> Iterator[Step | Tail]:
        tail, passes = Tail(counts_tokens=not speculative), None
        for arrived, data in lines:
            if text := chat_delta(data):
                yield Step([Piece(text)], arrived=arrived)
            tail.finish = finish_of(data) or tail.finish
            if usage := record(data.get("usage")):
                passes = count(usage.get("completion_tokens"))
                tail.prompt_tokens = count(usage.get("prompt_tokens")) or 0
        if speculative:
            tail.rounds = None if passes is None else max(0, passes - 1)
        else:
            tail.tokens = passes
        yield tail

    def counters(self, endpoint: Endpoint) -> Counters | None:
        return None
