"""The child process of the ONNX Runtime GenAI peer. Alone in its process: it imports nothing of
this project, see :mod:`.process` for what it reads and writes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    settings = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the library's own log is no answer

    import onnxruntime_genai as og

    og.disable_telemetry_events()
    config = og.Config(settings["model"])
    options = {"intra_op_num_threads": settings["threads"]}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    model = og.Model(config)
    print(json.dumps({"engine": f"ONNX Runtime GenAI {og.__version__}"}), file=out, flush=True)
    for line in sys.stdin:
        try:
            found = answer(og, model, **json.loads(line))
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=out, flush=True)


def answer(og: Any, model: Any, ids: list[int], max_new_tokens: int) -> dict[str, Any]:
    """One greedy completion, timed from the first token on."""
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, max_length=len(ids) + max_new_tokens)
    generator = og.Generator(model, params)
    began = time.perf_counter()
    generator.append_tokens(ids)
    generator.generate_next_token()
    first = time.perf_counter()
    while not generator.is_done():
        generator.generate_next_token()
    seconds = time.perf_counter() - first
    output = generator.get_sequence(0).tolist()[len(ids) :]
    tokens = len(output) - 1
    return {
        "ids": output,
        "tokens": tokens,
        "seconds": seconds,
        "ttft_seconds": first - began,
        "rounds": tokens,
    }


if __name__ == "__main__":
    main()
