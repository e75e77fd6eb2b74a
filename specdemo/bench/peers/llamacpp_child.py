"""The child process of a llama.cpp peer: its server on the loopback interface, asked from here.

Alone in its process: it imports nothing of this project, see :mod:`.process` for what it reads and
writes. With ``server`` among the settings it runs that llama-server instead of the one inside
xllamacpp.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from typing import Any

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    settings = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # llama.cpp's own log is no answer

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=out, flush=True)

    address, facts, process = (_own_server if settings["server"] else _wheel_server)(settings)
    say(facts)
    for line in sys.stdin:
        try:
            say(answer(address, **json.loads(line)))
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}"})
    if process is not None:
        process.terminate()
        process.wait()
    os._exit(0)  # the server's threads have nothing to save


def answer(address: str, ids: list[int], max_new_tokens: int) -> dict[str, Any]:
    """One greedy completion, on llama.cpp's own clock. It counts from the first token on."""
    body = {
        "prompt": ids,
        "n_predict": max_new_tokens,
        "temperature": 0,
        "samplers": ["temperature"],
        "cache_prompt": False,
        "return_tokens": True,
    }
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with DIRECT.open(request, timeout=300) as reply:
        found = json.load(reply)
    timings = found["timings"]
    tokens = timings["predicted_n"] - 1
    return {
        "ids": found["tokens"],
        "tokens": tokens,
        "seconds": timings["predicted_ms"] / 1e3,
        "ttft_seconds": timings["prompt_ms"] / 1e3,
        # a round writes what it accepted and one token more
        "rounds": tokens - timings.get("draft_n_accepted", 0),
    }


def _wheel_server(settings: dict[str, Any]) -> tuple[str, dict[str, Any], None]:
    import xllamacpp as xlc

    params, kinds = xlc.CommonParams(), xlc.common_speculative_type
    params.model.path = settings["model"]
    params.n_ctx, params.n_parallel = settings["context"], 1
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    speculative = params.speculative
    if settings["ngram"]:
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        speculative.ngram_simple.size_n = settings["ngram"]
        speculative.ngram_simple.size_m = settings["draft_tokens"]
    if settings["drafter"]:
        draft = speculative.draft
        speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft.mparams.path, draft.n_max = settings["drafter"], settings["draft_tokens"]
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = settings["threads"]
    server = xlc.Server(params)
    globals()["keep"] = server  # it stops when it is collected
    facts = {
        "engine": f"llama.cpp (xllamacpp {version('xllamacpp')})",
        "features": _features(xlc.get_system_info()),
    }
    return server.listening_address, facts, None


def _features(info: str) -> list[str]:
    """Vector instructions that this build of llama.cpp uses, of those that matter for speed."""
    known = ("AVX2", "AVX512", "AVX512_BF16", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8", "NEON", "SVE")
    words = info.replace("|", " ").replace(":", " ").split()
    return [name for name in known if name in words]


def _own_server(settings: dict[str, Any]) -> tuple[str, dict[str, Any], subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    threads, tokens = str(settings["threads"]), str(settings["draft_tokens"])
    command = [settings["server"], "-m", settings["model"], "--host", "127.0.0.1", "--port", port]
    command += ["-c", str(settings["context"]), "-np", "1", "-t", threads, "-tb", threads]
    command += ["--cache-ram", "0"]
    if settings["ngram"]:
        command += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", tokens]
        command += ["--spec-ngram-simple-size-n", str(settings["ngram"])]
    if settings["drafter"]:
        command += ["--spec-type", "draft-simple", "-md", settings["drafter"]]
        command += ["--spec-draft-n-max", tokens, "-td", threads, "-tbd", threads]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    address = f"http://127.0.0.1:{port}"
    while process.poll() is None:
        try:
            with DIRECT.open(f"{address}/health", timeout=2):
                break
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    if process.poll() is not None:
        raise SystemExit(f"llama-server ended with status {process.returncode}")
    shown = subprocess.run(
        [settings["server"], "--version"], capture_output=True, text=True, errors="replace"
    )
    text = (shown.stdout + shown.stderr).strip().splitlines()
    build = next((line for line in text if line.startswith("version")), "of unknown version")
    return address, {"engine": f"llama.cpp (llama-server, {build})", "features": []}, process


if __name__ == "__main__":
    main()
