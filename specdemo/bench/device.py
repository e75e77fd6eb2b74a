"""``specdemo device``: what this machine does with one pass of the target, in one short report.

Which widths compute bitwise equal rows, what they cost (and, where there are CUDA graphs, the
masked pass eager and captured), what a draft pass costs, and a few races with the exactness check.
This is the first thing to run on hardware nobody has measured yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..events import Done
from ..files import check_output, write_output
from ..prompts import load_prompts
from ..request import Request

if TYPE_CHECKING:
    from ..engine import Engine
    from ..engine.attention import AttentionKind

PROMPTS = (
    "A train travels 60 km in 45 minutes. How far does it go in 3 hours? Explain step by step.",
    "Write a Python function that checks whether a word is a palindrome.",
    "Explain to a child why the sky is blue.",
    "List five tips for learning to cook.",
    "Translate into French: Where is the nearest station?",
    "Write a short story about a robot who learns to paint.",
    "What is the difference between a lake and a sea?",
    "Summarise in two sentences why sleep matters for students.",
    "There are 24 pupils and a third of them play chess. How many do not? Explain step by step.",
    "Write a polite e-mail that asks for a day off.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``device``."""
    add = parser.add_argument
    add(
        "--pair",
        default="smollm2-135m",
        metavar="ID",
        help="target and drafter, see “specdemo models” (default: %(default)s)",
    )
    add("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    add(
        "--dtypes",
        default="bfloat16,float32",
        metavar="A,B",
        help="number types to measure, one after the other (default: %(default)s)",
    )
    add(
        "--methods",
        default="block,tree,best",
        metavar="A,B",
        help="methods to race (default: %(default)s)",
    )
    add("--prompts", metavar="FILE", help="prompts, as for bench (default: ten built-in ones)")
    add("--limit", type=int, default=10, metavar="N", help="prompts to race (default: 10)")
    add(
        "--max-new-tokens",
        type=int,
        default=64,
        metavar="N",
        help="new tokens per answer (default: 64)",
    )
    add(
        "--repeats",
        type=int,
        default=20,
        metavar="N",
        help="timed passes of each kind, of which the median counts (default: 20)",
    )
    add("--out", metavar="FILE", help="also write the report there")


def device_main(args: argparse.Namespace) -> int:
    """Print the report as one JSON object."""
    from ..engine import load_engine
    from ..engine.calibrate import draft_pass_ms

    if min(args.repeats, args.limit, args.max_new_tokens) < 1:
        raise UserError("--repeats, --limit and --max-new-tokens must be at least 1.")
    prompts = (
        [prompt.text for prompt in load_prompts(args.prompts).first(args.limit)]
        if args.prompts
        else list(PROMPTS[: args.limit])
    )
    methods = [name.strip() for name in args.methods.split(",")]
    for method in methods:
        Request(prompts[0], method, max_new_tokens=args.max_new_tokens, check="exact")
    if args.out:
        check_output(Path(args.out), "The report")
    report: dict[str, Any] = {}
    for dtype in args.dtypes.split(","):
        engine = load_engine(args.pair, dtype.strip(), args.device)
        report |= {"hardware": engine.hardware(), "pair": args.pair}
        report[dtype.strip()] = {
            "target_pass": engine.target.pass_kind,
            "passes": passes(engine, args.repeats),
            "attention": attentions(engine, args.repeats),
            "draft": draft_pass_ms(engine, repeats=args.repeats),
            "races": races(engine, methods, prompts, args.max_new_tokens),
        }
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        write_output(Path(args.out), text, "The report")
    return 0


def passes(engine: Engine, repeats: int, context: int = 160) -> dict[str, Any]:
    """Per width: milliseconds, and how its rows compare with those of the verify width."""
    import torch

    from ..engine.calibrate import median_ms
    from ..engine.cost import VERIFY_WIDTH, WIDTHS

    target = engine.target
    prompt = [(37 * i + 101) % (target.vocab_size - 1) for i in range(context)]
    text = [(91 * i + 7) % (target.vocab_size - 1) for i in range(8)]
    out: dict[str, Any] = {}
    with torch.inference_mode():
        cache = target.new_cache(context + 2 * WIDTHS[-1])
        target.prefill(cache, prompt)
        reference = target.verify(
            cache, text[0], text[1:], list(range(-1, len(text) - 2)), VERIFY_WIDTH
        )[0]
        for width in WIDTHS:
            rows = []
            for token in text:
                rows.append(target.verify(cache, token, [], [], width)[0][0])
                cache.commit([])
            cache.rollback(context)
            equal = sum(torch.equal(a, b) for a, b in zip(rows, reference, strict=True))
            gap = float((torch.stack(rows).float() - reference.float()).abs().max())

            def step(width: int = width) -> torch.Tensor:
                return target.verify(cache, text[0], [], [], width)[0]

            out[str(width)] = {
                "equal_rows": equal,
                "of": len(text),
                "max_difference": gap,
                "eager_ms": median_ms(target.device, step, repeats),
            }
            if target.device.type == "cuda":
                out[str(width)] |= _captured(engine, cache, width, repeats)
    return out


def attentions(engine: Engine, repeats: int) -> dict[str, dict[AttentionKind, float]]:
    """Milliseconds of verifying a tree of 15 or 31 nodes behind a short and a long context: exact,
    cascade (D²SD) and one masked kernel, in turns.
    """
    import torch

    from ..engine.attention import ATTENTIONS
    from ..hardware import clock_now

    target, out = engine.target, {}
    with torch.inference_mode():
        for context in (160, min(1000, target.max_positions - 64)):
            cache = target.new_cache(context + 64)
            target.prefill(
                cache, [(37 * i + 101) % (target.vocab_size - 1) for i in range(context)]
            )
            for nodes in (15, 31):
                # binary
                tokens, parent = list(range(20, 20 + nodes)), [(i - 1) // 2 for i in range(nodes)]
                parent[0] = -1
                times: dict[AttentionKind, list[float]] = {kind: [] for kind in ATTENTIONS}
                for turn in range(repeats + 2):
                    for kind, taken in times.items():
                        began = clock_now(target.device)
                        target.verify(cache, 11, tokens, parent, nodes + 1, attention=kind)
                        if turn > 1:
                            taken.append((clock_now(target.device) - began) * 1e3)
                out[f"{context} + {nodes}"] = {
                    kind: statistics.median(taken) for kind, taken in times.items()
                }
    return out


def races(
    engine: Engine, methods: list[str], prompts: list[str], max_new_tokens: int
) -> dict[str, Any]:
    """Per method over the prompts: the ratio of summed rates, tokens per round, and whether every
    answer was exact.
    """
    from ..engine import race

    out: dict[str, Any] = {}
    for method in methods:
        requests = [
            Request(
                prompt, method=method, max_new_tokens=max_new_tokens, record=False, check="exact"
            )
            for prompt in prompts
        ]
        # both lanes of every race run, and nobody stops it: no field is None
        results: list[dict[str, Any]] = [
            dict(event.result)
            for request in requests
            for event in race(engine, request)
            if isinstance(event, Done)
        ]
        one_row = [result["exact"]["one_row"] for result in results]
        out[method] = {
            "speedup": _speedup(results),
            "tokens_per_round": (
                sum(result["spec"]["tokens"] - 1 for result in results)
                / max(sum(result["spec"]["rounds"] for result in results), 1)
            ),
            "identical": sum(bool(result["identical"]) for result in results),
            "bitwise": sum(result["exact"]["identical"] for result in results),
            "one_row_identical": sum(check["identical"] for check in one_row),
            "one_row_differences": [
                check["first_difference"] for check in one_row if not check["identical"]
            ],
            "runs": len(results),
        }
    return out


def _speedup(results: list[dict[str, Any]]) -> float | None:
    """Ratio of summed tokens / summed seconds, from each race's own speed-up over its baseline."""
    timed = [result for result in results if result["speedup"]]
    if not timed:
        return None
    baseline_seconds = sum(
        (result["ar"]["tokens"] - 1) * result["speedup"] / result["spec"]["tokens_per_second"]
        for result in timed
    )
    return baseline_seconds / sum(result["spec"]["seconds"] for result in timed)


def _captured(engine: Engine, cache: Any, width: int, repeats: int) -> dict[str, float]:
    """Milliseconds of the pass with one masked kernel, eager and as a CUDA graph of fixed length.
    The exact attention copies its cuts from the host, which no graph can hold.
    """
    import torch

    from ..engine.calibrate import median_ms

    target = engine.target
    ids = torch.full((width,), 11, device=target.device)
    positions = torch.arange(cache.length, cache.length + width, device=target.device)
    seen = torch.ones(width, width, dtype=torch.bool, device=target.device).tril_()

    def step() -> torch.Tensor:
        return target.head(target._forward(cache, ids, positions, seen, (), "masked")[0])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return {
        "masked_ms": median_ms(target.device, step, repeats),
        "masked_graph_ms": median_ms(target.device, graph.replay, repeats),
    }
