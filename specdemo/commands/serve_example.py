"""``specdemo serve-example``: commands that start both endpoints of an engine, to be copied."""

from __future__ import annotations

import argparse
import json
import re
import shlex

from ..errors import UserError
from ..models.served import KINDS, TITLES

PORTS = (8000, 8001)
PLAIN = re.compile(r"[A-Za-z][\w./-]*")  # YAML takes it for text without quotes
COMMANDS: dict[str, tuple[str, str]] = {
    "llama.cpp": (
        "llama-server -m {model} --host 127.0.0.1 --port {port} --metrics --slots -np 1",
        "llama-server -m {model} --host 127.0.0.1 --port {port} --metrics --slots -np 1"
        " --spec-type {method} -md {drafter} --spec-draft-n-max {tokens}",
    ),
    "vllm": (
        "vllm serve {model} --host 127.0.0.1 --port {port} --no-enable-prefix-caching",
        "vllm serve {model} --host 127.0.0.1 --port {port} --no-enable-prefix-caching"
        " --speculative-config {config} --per-request-spec-decode-metrics detailed",
    ),
    "sglang": (
        "python -m sglang.launch_server --model-path {model} --host 127.0.0.1 --port {port}"
        " --enable-metrics --disable-radix-cache --incremental-streaming-output",
        "python -m sglang.launch_server --model-path {model} --host 127.0.0.1 --port {port}"
        " --enable-metrics --disable-radix-cache --incremental-streaming-output"
        " --speculative-algorithm {algorithm} --speculative-draft-model-path {drafter}"
        " --speculative-num-draft-tokens {tokens}",
    ),
    "trtllm": (
        "trtllm-serve {model} --host 127.0.0.1 --port {port}",
        "trtllm-serve {model} --host 127.0.0.1 --port {port} --config draft.yaml",
    ),
    "transformers": ("transformers serve {model} --host 127.0.0.1 --port {port}", ""),
}
NOTES = {
    "llama.cpp": "MODEL and DRAFTER are GGUF files. --spec-type: draft-simple for a small model of"
    " the same family, draft-dflash or draft-dspark for a diffusion drafter.",
    "vllm": "Out of a wheel or the container vllm/vllm-openai, whose arguments are those behind"
    " “vllm serve”. “method”: dflash or dspark for a diffusion drafter, draft_model for a small"
    " model, ngram without one. The last option needs vLLM 0.32.",
    "sglang": "The algorithm is DFLASH or DSPARK for a diffusion drafter, STANDALONE for a small"
    " model. Not run by this project, only read.",
    "trtllm": "draft.yaml holds “speculative_config: {{decoding_type: DFlash, max_draft_len:"
    " {tokens}, speculative_model: {drafter}}}”, and for counters lines “return_perf_metrics: true”"
    " and “enable_iter_perf_stats: true”; older versions call the option"
    " --extra_llm_api_options. Not run by this project, only read.",
    "transformers": "One endpoint is enough: the request switches prompt lookup on, which needs no"
    " drafter.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``serve-example``."""
    parser.add_argument("kind", choices=KINDS, help="the engine")
    parser.add_argument("--model", default="MODEL", help="of the target (default: MODEL)")
    parser.add_argument("--drafter", default="DRAFTER", help="of the drafter (default: DRAFTER)")
    parser.add_argument("--tokens", type=int, default=15, help="drafted a round (default: 15)")


def serve_example_main(args: argparse.Namespace) -> int:
    """Print both commands and the lines for models.yaml."""
    model, drafter = shlex.quote(args.model), shlex.quote(args.drafter)
    if args.tokens < 1:
        raise UserError(f"--tokens must be at least 1, not {args.tokens}.")
    config = json.dumps(
        {"method": "dflash", "model": args.drafter, "num_speculative_tokens": args.tokens}
    )
    for what, command, port in zip(
        ("plain", "speculative"), COMMANDS[args.kind], PORTS, strict=True
    ):
        if command:
            print(f"# the {what} endpoint")
            print(
                command.format(
                    model=model,
                    drafter=drafter,
                    port=port,
                    tokens=args.tokens,
                    method="draft-dflash",
                    algorithm="DFLASH",
                    config=shlex.quote(config),
                )
            )
    print(f"# {NOTES[args.kind].format(tokens=args.tokens, drafter=args.drafter)}\n")
    print("# models.yaml, below “pairs:”; see docs/engines.md")
    print(f"  mine:\n    title: My model, served by {TITLES[args.kind]}\n    engine:")
    print(f"      kind: {args.kind}\n      plain: http://127.0.0.1:{PORTS[0]}")
    if COMMANDS[args.kind][1]:
        print(f"      speculative: http://127.0.0.1:{PORTS[1]}")
    else:
        name = args.model if PLAIN.fullmatch(args.model) else json.dumps(args.model)
        print(f"      model: {name}")
    return 0
