"""Which engine answers, by the pages that only it has: a wrong ``kind`` in models.yaml is named."""

from __future__ import annotations

from ..errors import UserError
from ..models.served import TITLES, EngineKind
from .client import record, text_of, version_of
from .wire import Endpoint


def other_kind(endpoint: Endpoint, kind: EngineKind) -> UserError | None:
    """A refusal that says what the endpoint really is; None where it is ``kind`` or cannot be told.

    llama.cpp has ``/props`` with its build, SGLang ``/server_info`` with its algorithm, vLLM and
    TensorRT-LLM ``/version`` alone.
    """
    try:
        found = _kinds(endpoint)
    except UserError:  # it no longer answers
        return None
    if not found or kind in found:
        return None
    names = " or ".join(TITLES[each] for each in found)
    return endpoint.say(
        f"is {names}, not {TITLES[kind]}; correct “kind” in models.yaml to {' or '.join(found)}."
    )


def _kinds(endpoint: Endpoint) -> tuple[EngineKind, ...]:
    if text_of(record(endpoint.get("/props").data).get("build_info")):
        return ("llama.cpp",)
    if "speculative_algorithm" in record(endpoint.get("/server_info").data):
        return ("sglang",)
    return ("vllm", "trtllm") if version_of(endpoint) else ()
