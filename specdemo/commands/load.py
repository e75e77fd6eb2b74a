"""``specdemo load``: both endpoints of a serving engine under more and more streams."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..attached.load import LEVELS, Level, advice, cautions, measure_load
from ..attached.race import Attached, attach
from ..errors import UserError
from ..files import locked_output_dir, write_output
from ..prompts import HELD_OUT, load_suite
from ..request import Request
from .options import SENT_ELSEWHERE

WORDS = {"ar": "plain", "spec": "speculative"}
MOST = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``load``."""
    add = parser.add_argument
    add("--pair", required=True, metavar="ID", help="a pair with an engine, see docs/engines.md")
    add(
        "--suite",
        default=HELD_OUT,
        metavar="FILE",
        help="prompts, as “bench” reads them (default: %(default)s, which come with SpecDemo)",
    )
    add("--limit", type=int, metavar="N", help="only N prompts, from the categories in turn")
    add(
        "--streams",
        default=",".join(map(str, LEVELS)),
        metavar="A,B",
        help="how many at once (default: %(default)s)",
    )
    add("--max-new-tokens", type=int, default=96, metavar="N", help="per answer (default: 96)")
    add("--out", required=True, metavar="DIR", help="folder of load.json and load.html")


def load_main(args: argparse.Namespace) -> int:
    """Measure, print a table, write both files; 130 where a person interrupted."""
    from ..models.pairs import get_pair

    levels = _levels(args.streams)
    pair = get_pair(args.pair)
    if pair.engine is None:
        raise UserError(
            f"{pair.id} runs here, one answer at a time; load measures a pair with an engine"
            " (docs/engines.md)."
        )
    prompts = load_suite(args.suite).first(args.limit)
    requests = [Request(p.text, method="ar", max_new_tokens=args.max_new_tokens) for p in prompts]
    out = Path(args.out)
    with locked_output_dir(out):
        attached = attach(pair.id, pair.engine)
        print(SENT_ELSEWHERE, file=sys.stderr)
        found: list[Level] = []
        code = 0
        try:
            for level in measure_load(attached, requests, levels):
                found.append(level)
                rate = f"{level.tokens_per_second:.1f} tokens/s"
                print(f"{WORDS[level.endpoint]}, {level.streams} at once: {rate}", file=sys.stderr)
        except KeyboardInterrupt:
            if not found:
                raise
            print("Stopped; what was measured is reported.", file=sys.stderr)
            code = 130
        _report(out, attached, args.max_new_tokens, found)
    return code


def _levels(text: str) -> list[int]:
    try:
        levels = sorted({int(word) for word in text.split(",")})
    except ValueError:
        levels = []
    if not levels or levels[0] < 1 or levels[-1] > MOST:
        raise UserError(f"--streams takes whole numbers from 1 to {MOST}, for instance 1,4,16.")
    return levels


def _report(out: Path, attached: Attached, tokens: int, levels: Sequence[Level]) -> None:
    from ..bench.load_report import page

    table = Table(title=f"{attached.title} under load", title_justify="left")
    for heading in ("endpoint", "streams", "tok/s", "first p50", "first p95", "next p50",
        "next p95", "accepted", "failed"):  # fmt: skip
        table.add_column(heading, justify="right")
    for level in levels:
        times = [*(level.ttft or ()), *(level.itl or ())]
        table.add_row(
            WORDS[level.endpoint],
            str(level.streams),
            f"{level.tokens_per_second:.1f}",
            *(f"{1e3 * t:.0f} ms" for t in times),
            *["–"] * (4 - len(times)),
            "–" if level.accepted is None else f"{level.accepted:.0%}",
            str(level.failed),
        )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    said = [advice(levels), *cautions(levels, attached.slots)]
    print("\n".join(said))
    for why in dict.fromkeys(level.why for level in levels if level.why):
        print(why)
    report = {
        "format": "specdemo-load",
        "version": 1,
        "engine": attached.title,
        "drafts": attached.served.drafts,
        "max_new_tokens": tokens,
        "levels": [level.to_dict() for level in levels],
        "advice": " ".join(said),
    }
    write_output(out / "load.json", json.dumps(report, indent=1), "The report")
    write_output(out / "load.html", page(report), "The report")
    print(f"{out / 'load.html'}\n{out / 'load.json'}")
