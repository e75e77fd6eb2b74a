"""``python -m specdemo bench``: measure methods on a prompt file, then write ``report.json`` and
``report.html``.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import locked_output_dir
from .lanes import Stopped, parse_methods, race_lanes
from .report import ALL, make_report, save_report
from .run import FORMAT, RUNS, VERSION, WARM_UP, Plan, begin, heat, measure, resume
from .suite import Item, from_prompts, load_suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``bench``."""
    parser.add_argument(
        "--suite",
        required=True,
        metavar="FILE",
        help="prompts: JSON lines with id, category and turns (Spec-Bench's question.jsonl too)",
    )
    parser.add_argument(
        "--methods",
        required=True,
        metavar="A,B",
        help=(
            "methods, each with settings if wanted: block,tree:budget=15,specdiff2:rule=point-mass"
        ),
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only N prompts, taken from the categories in turn"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="R", help="repeats of every prompt (default 3)"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=int,
        default=96,
        metavar="N",
        help="new tokens per answer (default 96)",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help=(
            "folder of the results; start again with the same options to go on after an"
            " interruption"
        ),
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 = greedy (default)"
    )
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="repeat r samples with seed S + r"
    )
    parser.add_argument("--pair", default="smollm2-135m", metavar="ID")
    parser.add_argument(
        "--drafter",
        metavar="DIR",
        help="a drafter folder that “train” left, instead of the pair's own",
    )
    parser.add_argument(
        "--dtype", metavar="D", help="float32 or bfloat16 (default: what this machine is fast at)"
    )
    parser.set_defaults(run=bench_main)


def bench_main(args: argparse.Namespace) -> int:
    """Run the bench as the options say; everything that can be refused is refused before the model
    loads.
    """
    from ..drafters import METHODS
    from ..models.pairs import get_pair, with_drafter
    from ..request import Request, Sampling

    if args.repeats < 1:
        raise UserError(f"--repeats must be at least 1, not {args.repeats}.")
    suite = load_suite(args.suite)
    items = suite.first(args.limit)
    specs = parse_methods(args.methods)
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    for spec in specs:
        Request(WARM_UP, spec.method, dict(spec.params), sampling, args.max_new_tokens, spec.rule)
    pair = with_drafter(get_pair(args.pair), args.drafter)
    named = f"{args.pair} with the drafter in {args.drafter}" if args.drafter else args.pair
    if why := next(
        (why for spec in specs if (why := METHODS[spec.method].refuse_pair(pair))), None
    ):
        raise UserError(why)
    plan = Plan(
        suite.name,
        suite.sha256,
        len(items),
        named,
        tuple(s.label for s in specs),
        args.repeats,
        args.max_new_tokens,
        sampling.to_dict(),
    )
    with locked_output_dir(Path(args.out)):
        return _bench(pair, args, specs, sampling, items, plan, Path(args.out))


def _bench(
    pair: Any,
    args: argparse.Namespace,
    specs: list[Any],
    sampling: Any,
    items: list[Any],
    plan: Plan,
    out: Path,
) -> int:
    from ..engine import load_engine
    from .html import save_html

    engine = load_engine(
        pair,
        args.dtype,
        progress=lambda message, fraction: print(f"\r{message}", end="\x1b[K", file=sys.stderr),
    )
    print(file=sys.stderr)
    try:
        with _Bar() as tell:
            lines, code = (
                measure(
                    race_lanes(engine, specs, sampling, args.max_new_tokens), items, plan, out, tell
                ),
                0,
            )
    except KeyboardInterrupt:
        lines, code = resume(out / RUNS, plan), 130
        print(
            f"Stopped. The same command goes on after the last complete prompt in {out}.",
            file=sys.stderr,
        )
        if not any("runs" in line for line in lines):
            return code
    report = make_report(lines)
    save_report(report, out / "report.json")
    save_html(report, out / "report.html")
    print(text_table(report))
    print(
        f"\n{out / 'report.html'}\n{out / 'report.json'} (copy it to assets/bench to show it on the"
        " page)"
    )
    return code


class _Bar:
    """A progress bar with the time left."""

    def __enter__(self):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.progress.start()
        self.task = self.progress.add_task("warm-up", total=None)
        return lambda done, total, text: self.progress.update(
            self.task, completed=done, total=total, description=text
        )

    def __exit__(self, *_):
        self.progress.stop()


def text_table(report: dict[str, Any]) -> str:
    """Speed-up and tokens per round, method × category, for a terminal."""
    columns = [ALL, *report["categories"]]
    width = max(map(len, [*report["methods"], "method"])) + 2
    wide = max(12, *(len(c) + 2 for c in columns))
    lines = ["method".ljust(width) + "".join(c.rjust(wide) for c in columns)]
    for label, row in report["table"].items():
        cells = [
            (
                "–"
                if row[c]["speedup"] is None
                else f"{row[c]['speedup']:.2f}× {row[c]['tokens_per_round'] or 0:.2f}"
            )
            for c in columns
        ]
        lines.append(label.ljust(width) + "".join(cell.rjust(wide) for cell in cells))
    return "\n".join(["Speed-up over plain decoding, tokens per round", *lines, *report["remarks"]])


def short_run(
    engine: Any,
    methods: str | Sequence[str],
    prompts: Sequence[str | Item],
    max_new_tokens: int = 64,
    sampling: Any = None,
    cancel: threading.Event | None = None,
) -> Iterator[tuple[float, dict[str, Any] | None, str]]:
    """A short bench for the page's button, one repeat: yields (fraction done, report so far or
    None, what comes next).

    Nothing is written to disk. ``cancel`` ends it within one round; what is complete stays in the
    last report.
    """
    from ..request import Sampling

    sampling = sampling or Sampling()
    specs, items = parse_methods(methods), from_prompts(prompts)
    if not items:
        raise UserError("There is no prompt to measure; choose at least one.")
    plan = Plan(
        "short local run",
        "",
        len(items),
        engine.loaded.pair.id,
        tuple(s.label for s in specs),
        1,
        max_new_tokens,
        sampling.to_dict(),
    )
    lanes = race_lanes(engine, specs, sampling, max_new_tokens, cancel)
    lines: list[dict[str, Any]] = [
        {"kind": "plan", "format": FORMAT, "version": VERSION, **plan.to_dict()}
    ]
    report = None
    yield 0.0, None, "warming up"
    try:
        lines.append(begin(lanes, []))
        for index, item in enumerate(items):
            yield index / len(items), report, f"prompt {index + 1} of {len(items)}"
            lines.append(heat(lanes, item, index, 0, plan))
            report = make_report(lines) if any("runs" in line for line in lines) else None
    except Stopped:
        yield (
            len([line for line in lines if line["kind"] == "heat"]) / len(items),
            report,
            "stopped",
        )
        return
    yield 1.0, report, "done"
