"""``specdemo bench``: measure methods on a prompt file, then write ``report.json`` and
``report.html``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ..commands.options import SENT_ELSEWHERE, add_dtype, add_pair, pair_of, refuse_own_options
from ..console import phases
from ..drafters import METHODS
from ..errors import UserError
from ..files import locked_output_dir
from ..models.served import METHOD
from ..prompts import ALL, HELD_OUT, Prompt, PromptFile, load_suite
from ..request import LAST_SEED, Request, Sampling
from .html import NONE, number, percent, save_html
from .measure import WARM_UP, measure
from .methods import BASELINE, MethodConfig, parse_methods
from .peers import DEFAULT_PEERS, PEER_TITLES, parse_peers
from .report import make_report, save_report
from .runners import Broken, Runner, make_runners
from .runs_file import RUNS, BenchPlan, Line, refuse_another, resume
from .schema import Figures, PeerTable, Report

if TYPE_CHECKING:
    from ..models.pairs import Pair
    from .peers.group import Peers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``bench``."""
    add = parser.add_argument
    add(
        "--suite",
        default=HELD_OUT,
        metavar="FILE",
        help=f"prompts: JSON lines, as Spec-Bench's question.jsonl (default: {HELD_OUT}, our own)",
    )
    add(
        "--methods",
        default="",
        metavar="A,B",
        help=(
            "methods, each with settings if wanted: block,tree:budget=15,specdiff2:rule=point-mass;"
            " none for a pair with an engine, which drafts by itself"
        ),
    )
    add(
        "--peers",
        nargs="?",
        const=",".join(DEFAULT_PEERS),
        metavar="A,B",
        help=(
            "also run other engines on the same prompts, in turns with the methods (default: all"
            f" that take no extra minutes): {', '.join(PEER_TITLES)}"
        ),
    )
    add(
        "--against",
        metavar="A",
        help="measure this method too, with settings as above, and say how fast the others are over"
        " it in the same trials",
    )
    add("--limit", type=int, metavar="N", help="only N prompts, taken from the categories in turn")
    add("--repeats", type=int, default=3, metavar="R", help="repeats of every prompt (default: 3)")
    add(
        "--max-new-tokens",
        type=int,
        default=96,
        metavar="N",
        help="new tokens per answer (default: 96)",
    )
    add(
        "--out",
        required=True,
        metavar="DIR",
        help="folder of the results; the same command continues there after an interruption",
    )
    _add_sampling(parser)
    add_pair(parser)
    add_dtype(parser)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="sampling temperature; 0 is greedy (default: 0)",
    )
    add(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="sample from the tokens that make up this much probability (default: 1, all)",
    )
    add("--seed", type=int, default=0, metavar="S", help="repeat r samples with seed S + r")


def bench_main(args: argparse.Namespace) -> int:
    """Run the bench as the options say; everything that can be refused is refused before the model
    loads.
    """
    suite = load_suite(args.suite)
    prompts = suite.first(args.limit)
    pair = pair_of(args)
    if pair.engine is not None:
        refuse_own_options(args, "methods", "against", "peers", "dtype", "remeasure")
    against = parse_methods(args.against)[0].label if args.against else None
    configs: tuple[MethodConfig, ...] = ()
    if pair.engine is None:
        configs = parse_methods([*args.methods.split(","), *filter(None, [against])])
    peers = parse_peers(args.peers)
    if peers and args.temperature > 0:
        raise UserError("Peers are compared by greedy decoding; leave --temperature at 0.")
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    check_methods(pair, configs, sampling, args)
    labels = tuple(config.label for config in configs) or (METHOD,)
    plan = plan_of(args, suite, pair, labels, sampling, peers)
    out = Path(args.out)
    with locked_output_dir(out):
        refuse_another(out, plan)
        lines, code = _measure(pair, args, configs, sampling, prompts, plan)
        if code and not any("runs" in line for line in lines):
            return code
        report = make_report(lines)
        save_report(report, out / "report.json")
        save_html(report, out / "report.html")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    print_report(report, console, against)
    print(
        f"\n{out / 'report.html'}\n{out / 'report.json'} (copy it to assets/bench to show it on the"
        " page)"
    )
    return code


def plan_of(
    args: argparse.Namespace,
    suite: PromptFile,
    pair: Pair,
    methods: tuple[str, ...],
    sampling: Sampling,
    peers: tuple[str, ...] = (),
) -> BenchPlan:
    """What a command line asks to be measured of ``methods``, by their labels."""
    return BenchPlan(
        suite=suite.name,
        sha256=suite.sha256,
        prompts=len(suite.first(args.limit)),
        pair=_named(pair, args.drafter),
        methods=methods,
        repeats=args.repeats,
        max_new_tokens=args.max_new_tokens,
        sampling=sampling.to_dict(),
        peers=peers,
    )


def _named(pair: Pair, drafter: str | None) -> str:
    """What the plan calls the pair: results of another drafter are not mixed in."""
    if pair.engine is not None and pair.engine.drafts:
        return f"{pair.id}, drafting with {pair.engine.drafts}"
    return f"{pair.id} with the drafter in {drafter}" if drafter else pair.id


def check_methods(
    pair: Pair,
    configs: tuple[MethodConfig, ...],
    sampling: Sampling,
    args: argparse.Namespace,
) -> None:
    """Raises UserError: one of the methods cannot be asked so, or not of this pair."""
    if args.repeats < 1:
        raise UserError(f"--repeats must be at least 1, not {args.repeats}.")
    if args.seed + args.repeats - 1 > LAST_SEED:
        raise UserError(
            f"Repeat r samples with seed S + r, and the last seed there is is {LAST_SEED}; lower"
            " --seed or --repeats."
        )
    for config in configs or (MethodConfig(BASELINE, BASELINE, "match"),):
        Request(
            WARM_UP,
            method=config.method,
            params=dict(config.params),
            sampling=sampling,
            max_new_tokens=args.max_new_tokens,
            rule=config.rule,
        )
        if why := METHODS[config.method].refuse_pair(pair):
            raise UserError(why)


def _measure(
    pair: Pair,
    args: argparse.Namespace,
    configs: tuple[MethodConfig, ...],
    sampling: Sampling,
    prompts: tuple[Prompt, ...],
    plan: BenchPlan,
) -> tuple[list[Line], int]:
    """All lines of the runs file, and the exit status: 0, 130 if a person interrupted, 1 if a
    serving engine has gone.
    """
    if pair.engine is not None:
        from ..attached.race import attach
        from .served import served_runners

        attached = attach(pair.id, pair.engine)
        print(SENT_ELSEWHERE, file=sys.stderr)
        return _trials(
            served_runners(attached, sampling, args.max_new_tokens), prompts, plan, Path(args.out)
        )
    from ..engine import load_engine
    from .peers.group import open_peers

    texts = [prompt.text for prompt in prompts]
    with ExitStack() as opened:
        with phases() as say:
            engine = load_engine(pair, args.dtype, progress=say, remeasure=args.remeasure)
            runners = make_runners(engine, configs, sampling, args.max_new_tokens)
            peers = opened.enter_context(
                open_peers(engine, plan.peers, texts, args.max_new_tokens, say)
            )
        return _trials(runners, prompts, plan, Path(args.out), peers)


def _trials(
    runners: dict[str, Runner],
    prompts: tuple[Prompt, ...],
    plan: BenchPlan,
    out: Path,
    peers: Peers | None = None,
) -> tuple[list[Line], int]:
    try:
        with progress_bar() as on_progress:
            return measure(runners, prompts, plan, out, on_progress, peers), 0
    except KeyboardInterrupt:
        why, code = "Stopped.", 130
    except Broken as error:
        why, code = f"specdemo: {error}", 1
    print(
        f"{why} The same command continues after the last complete trial in {out}.", file=sys.stderr
    )
    return resume(out / RUNS, plan), code


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left, on stderr."""
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("warm-up", total=None)
        yield lambda done, total, text: bar.update(
            task, completed=done, total=total, description=text
        )


def print_report(report: Report, console: Console, against: str | None = None) -> None:
    """Speed-up and tokens per round, method × category, then the remarks; with ``against`` how fast
    the methods are over that one in the same trials.
    """
    columns = [ALL, *report["categories"]]
    table = Table(
        title="Speed-up over plain decoding (95 % interval over prompts), tokens per round",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold")
    for column in columns:
        table.add_column(Text(column.replace("_", " ")), justify="right", overflow="fold")
    for label, row in report["table"].items():
        table.add_row(Text(label), *(_cell(row[column]) for column in columns))
    console.print(table)
    for label, others in report["paired"].items():
        if against in others:
            ratio, low, high = others[against]
            console.print(Text(f"{label} over {against}: {ratio:.2f}× ({low:.2f}–{high:.2f})"))
    if report["peers"]:
        _print_peers(report["peers"], console)
    for remark in report["remarks"]:
        console.print(Text(remark))


def _print_peers(peers: PeerTable, console: Console) -> None:
    table = Table(
        title="Beside other engines",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    columns = ("engine", "numbers", "tokens/s", "× our plain lane", "95 %", "same text")
    for column in (*columns, "program, threads, weights, drafts"):
        table.add_column(column, overflow="fold")
    for row in peers["rows"]:
        interval = " – ".join(number(bound) for bound in row["interval"] or ())
        threads = f"{row['threads']} threads" if row["threads"] else ""
        facts = (row["engine"], threads, row["weights"], row["drafts"], row["note"])
        table.add_row(
            Text(row["title"]),
            Text(row["dtype"]),
            number(row["tokens_per_second"], 1),
            number(row["ratio"]),
            interval or NONE,
            percent(row["same_text"]),
            Text("; ".join(fact for fact in facts if fact)),
        )
    console.print(table)
    console.print(Text(peers["advice"]))


def _cell(figures: Figures) -> str:
    if figures["speedup"] is None:
        return NONE
    low, high = figures["interval"] or (None, None)
    bounds = f" ({number(low)}–{number(high)})" if figures["interval"] else ""
    return f"{figures['speedup']:.2f}×{bounds} {figures['tokens_per_round'] or 0:.2f}"
