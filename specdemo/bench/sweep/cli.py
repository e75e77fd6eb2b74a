"""``specdemo sweep``: measure a method against one of its settings, then write curves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...commands.options import add_dtype, add_pair, pair_of
from ...console import phases
from ...errors import UserError
from ...files import locked_output_dir
from ...prompts import HELD_OUT, PromptFile, load_suite
from ...request import Sampling
from ..cli import check_methods, plan_of, progress_bar
from ..html import number
from ..measure import measure
from ..methods import MethodConfig, parse_methods
from ..runners import make_runners
from ..runs_file import RUNS, Line, refuse_another, resume
from .page import save_page
from .points import own_sweep
from .presets import PRESETS, preset
from .result import Result, make_result, save_csv, save_json

if TYPE_CHECKING:
    from ...models.pairs import Pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``sweep``."""
    add = parser.add_argument
    add(
        "what",
        nargs="?",
        metavar="SWEEP",
        help=f"{', '.join(PRESETS)}; or a method, with --vary; nothing lists them",
    )
    add(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="gamma=2..15 or steps=1,2,4; a second one gives the lines; answer-temperature too",
    )
    add("--suite", default=HELD_OUT, metavar="FILE", help="prompts (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="only N prompts, taken from the categories in turn")
    add("--repeats", type=int, default=3, metavar="R", help="repeats of a prompt (default: 3)")
    add("--max-new-tokens", type=int, default=96, metavar="N", help="(default: 96)")
    add("--seed", type=int, default=0, metavar="S", help="repeat r samples with seed S + r")
    add("--out", metavar="DIR", help="folder of the results; the same command goes on there")
    add_pair(parser)
    add_dtype(parser)


def sweep_main(args: argparse.Namespace) -> int:
    """Run the sweep as the options say; everything that can be refused is refused before the model
    loads.
    """
    if args.what is None:
        print_list(Console(highlight=False))
        return 0
    if not args.out:
        raise UserError("Name a folder for the results with --out.")
    sweep = own_sweep(args.what, args.vary) if args.vary else preset(args.what)
    suite = load_suite(args.suite)
    pair = pair_of(args)
    groups = {}
    for temperature in sweep.temperatures:
        sampling = Sampling(temperature=temperature, seed=args.seed)
        configs = parse_methods(sweep.labels(temperature))
        check_methods(pair, configs, sampling, args)
        groups[temperature] = (sampling, configs)
    out = Path(args.out)
    with locked_output_dir(out):
        runs, code = _measure(args, pair, suite, groups)
        if code and not any("runs" in line for lines in runs.values() for line in lines):
            return code
        result = make_result(sweep, runs)
        save_json(result, out / "sweep.json")
        save_csv(result, out / "sweep.csv")
        save_page(result, out / "sweep.html")
    print_result(result, Console(highlight=False, width=None if sys.stdout.isatty() else 160))
    print(f"\n{out / 'sweep.html'}\n{out / 'sweep.csv'}\n{out / 'sweep.json'}")
    return code


def _measure(
    args: argparse.Namespace,
    pair: Pair,
    suite: PromptFile,
    groups: dict[float, tuple[Sampling, tuple[MethodConfig, ...]]],
) -> tuple[dict[float, list[Line]], int]:
    """By temperature the lines of its runs file, and the exit status: 0, or 130 if a person
    interrupted.
    """
    from ...engine import load_engine

    prompts = suite.first(args.limit)
    runs: dict[float, list[Line]] = {}
    plans = {
        temperature: plan_of(args, suite, pair, tuple(config.label for config in configs), sampling)
        for temperature, (sampling, configs) in groups.items()
    }
    for temperature, plan in plans.items():
        refuse_another(_folder(args, temperature), plan)
    with phases() as say:
        engine = load_engine(pair, args.dtype, progress=say, remeasure=args.remeasure)
    for temperature, (sampling, configs) in groups.items():
        plan, out = plans[temperature], _folder(args, temperature)
        try:
            with progress_bar() as on_progress:
                runners = make_runners(engine, configs, sampling, args.max_new_tokens)
                runs[temperature] = measure(runners, prompts, plan, out, on_progress)
        except KeyboardInterrupt:
            print(f"Stopped. The same command goes on in {args.out}.", file=sys.stderr)
            lines = resume(out / RUNS, plan)
            return runs | ({temperature: lines} if _trials(lines) else {}), 130
    return runs, 0


def _folder(args: argparse.Namespace, temperature: float) -> Path:
    return Path(args.out) / f"temperature-{temperature:g}"


def _trials(lines: list[Line]) -> bool:
    return any("runs" in line for line in lines)


def print_list(console: Console) -> None:
    """The sweeps there are, and what each follows."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("sweep", "what", "points", "after"):
        table.add_column(column, overflow="fold")
    for sweep in PRESETS.values():
        table.add_row(
            Text(sweep.name), Text(sweep.title), str(len(sweep.points)), Text(sweep.source)
        )
    console.print(table)
    console.print("Or a method and what to vary: specdemo sweep tree --vary budget=3,7,15 --out …")


def print_result(result: Result, console: Console) -> None:
    """A row a point."""
    table = Table(title=Text(result["title"]), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("line", result["axis"], "speed-up", "95 %", "tokens per round", "95 %"):
        table.add_column(Text(column), overflow="fold")
    for line in result["lines"]:
        for point in line["points"]:
            table.add_row(
                Text(line["name"]),
                Text(point["x"]),
                number(point["speedup"]),
                " – ".join(number(bound) for bound in point["interval"] or ()),
                number(point["tokens_per_round"]),
                " – ".join(number(bound) for bound in point["tokens_interval"] or ()),
            )
    console.print(table)
    if result["paper"]:
        console.print(Text(f"In the paper ({result['source']}): {result['paper']}"))
