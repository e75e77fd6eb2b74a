"""``specdemo device``: what this machine does with one pass of the target, in one short report.

Which widths compute bitwise equal rows, what they cost (and, where there are CUDA graphs, the
masked pass eager and captured), what a draft pass costs, and a few races with the exactness check.
This is the first thing to run on hardware nobody has measured yet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import phases
from ..drafters import METHODS
from ..errors import UserError
from ..events import Done
from ..files import check_output, write_output
from ..models.pairs import WHERE_NONE
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
    "Name the planets of the solar system in order and say one thing about each.",
    "Write a SQL query that lists the ten customers with the most orders.",
    "A shirt costs 40 euros after a discount of 20 %. What did it cost before?",
    "Explain how a bicycle stays upright.",
    "Write a haiku about rain, then explain its form.",
    "Compare tea and coffee in a short table.",
    "Write a Python class for a stack with push, pop and peek.",
    "What should I pack for three days of hiking in the mountains?",
    "Continue the sequence 2, 3, 5, 8, 13 and explain the rule.",
    "Describe the water cycle to a ten-year-old.",
)
GRAPH_LIMIT, PRETEND_LIMIT, PRETEND_TOKENS = 20, 1, 4
FORCED, FORCED_TOKENS = 6.5, 256  # tokens a round, and of an answer, with --shape


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``device``."""
    add = parser.add_argument
    add(
        "--pair",
        metavar="ID",
        help=f"target and drafter, see “specdemo models” ({WHERE_NONE})",
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
    add("--prompts", metavar="FILE", help="prompts, as for bench (default: built-in ones)")
    add(
        "--limit",
        type=int,
        metavar="N",
        help=f"prompts to race (default: 10, with --graphs {GRAPH_LIMIT})",
    )
    add("--max-new-tokens", type=int, metavar="N", help="new tokens per answer (default: 64)")
    add(
        "--repeats",
        type=int,
        default=20,
        metavar="N",
        help="timed passes of each kind, of which the median counts (default: 20)",
    )
    add("--out", metavar="FILE", help="also write the report there")
    add(
        "--graphs",
        action="store_true",
        help="on a GPU: check everything that captured rounds promise, each with passed or failed,"
        " in the first of --dtypes",
    )
    add(
        "--pretend",
        action="store_true",
        help="with --graphs and without a GPU: the same steps on a made-up accelerator, which finds"
        f" faults but measures nothing (default: {PRETEND_LIMIT} prompt, {PRETEND_TOKENS} tokens)",
    )
    _add_shape_arguments(parser)


def _add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--shape",
        metavar="NAME",
        help="instead: what a round takes outside passes, for random weights of a known model's"
        " shape (smollm2-135m, qwen3-0.6b, qwen3-4b, qwen3-8b, llama3-8b), in the first of"
        " --dtypes",
    )
    add(
        "--force-tokens-per-round",
        type=float,
        metavar="T",
        help=f"with --shape: tokens that a round's draft brings (default: {FORCED})",
    )


def device_main(args: argparse.Namespace) -> int:
    """Print the report as one JSON object."""
    from ..engine import load_engine
    from ..engine.calibrate import draft_pass_ms
    from ..models.pairs import get_pair

    if args.pretend and not args.graphs:
        raise UserError("--pretend goes with --graphs.")
    if args.force_tokens_per_round is not None and not args.shape:
        raise UserError("--force-tokens-per-round goes with --shape.")
    if args.shape:
        return _shape(args)
    limit = PRETEND_LIMIT if args.pretend else GRAPH_LIMIT if args.graphs else 10
    args.limit = limit if args.limit is None else args.limit
    if args.max_new_tokens is None:
        args.max_new_tokens = PRETEND_TOKENS if args.pretend else 64
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
    if args.graphs:
        return _graphs(args, methods, prompts)
    pair = get_pair(args.pair)
    for method in dict.fromkeys(("block", *methods)):  # its draft is timed in any case
        if why := METHODS[method].refuse_pair(pair):
            raise UserError(why)
    report: dict[str, Any] = {}
    for dtype in args.dtypes.split(","):
        with phases() as say:
            engine = load_engine(args.pair, dtype.strip(), args.device, say)
            report |= {"hardware": engine.hardware(), "pair": engine.loaded.pair.id}
            say(f"Measuring passes in {dtype.strip()}", None)
            report[dtype.strip()] = {
                "target_pass": engine.target.pass_kind,
                "passes": passes(engine, args.repeats),
                "attention": attentions(engine, args.repeats),
                "draft": draft_pass_ms(engine, repeats=args.repeats),
            }
            say(f"Racing in {dtype.strip()}", None)
            report[dtype.strip()]["races"] = races(engine, methods, prompts, args.max_new_tokens)
    _publish(report, args.out)
    return 0


def _publish(report: dict[str, Any], out: str | None) -> None:
    text = json.dumps(report, indent=1)
    print(text)
    if out:
        write_output(Path(out), text, "The report")


def _shape(args: argparse.Namespace) -> int:
    """The report of ``--shape``."""
    import torch

    from ..engine.load import make_engine
    from ..models.load import DTYPES, default_device
    from .overhead import overhead
    from .shapes import random_pair

    tokens, name = args.max_new_tokens or FORCED_TOKENS, args.dtypes.split(",")[0].strip()
    if args.graphs or name not in DTYPES or tokens < 2:
        raise UserError(
            f"--shape takes one of the number types {', '.join(DTYPES)}, at least 2 new tokens, and"
            " no --graphs."
        )
    if args.out:
        check_output(Path(args.out), "The report")
    device = torch.device(args.device) if args.device else default_device()
    engine = make_engine(random_pair(args.shape, DTYPES[name], device))
    forced = FORCED if args.force_tokens_per_round is None else args.force_tokens_per_round
    report = {"hardware": engine.hardware(), "dtype": name}
    _publish(report | overhead(engine, args.shape, forced, tokens), args.out)
    return 0


def _graphs(args: argparse.Namespace, methods: list[str], prompts: list[str]) -> int:
    """The report of ``--graphs``; 1 where something failed."""
    import torch

    from ..engine import load_engine
    from .graph_report import GraphReport
    from .made_up_gpu import pretended_gpu

    if not args.pretend and not torch.cuda.is_available():
        raise UserError(
            "There is no GPU here to capture graphs on; run this on a machine with one, or add"
            " --pretend to run its steps on a made-up accelerator."
        )
    with pretended_gpu() if args.pretend else contextlib.nullcontext():
        engine = load_engine(args.pair, args.dtypes.split(",")[0].strip(), args.device or "cuda")
        if engine.target.device.type != "cuda":
            raise UserError("--graphs needs a GPU; leave --device away, or name one.")
        report: dict[str, Any] = {"hardware": engine.hardware(), "pair": engine.loaded.pair.id}

        def say(line: str) -> None:
            print(line, file=sys.stderr, flush=True)

        report |= GraphReport(
            engine, methods, prompts, args.max_new_tokens, args.repeats, say, not args.pretend
        ).run()
    _publish(report, args.out)
    return 0 if report["passed"] else 1


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

    target = engine.fast_target
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
