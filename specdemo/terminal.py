"""A race in the terminal: the speculative lane's tokens in colour as they come, then the
summary.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .errors import UserError
from .events import Done, DraftMade, Event, Prefill, Verify
from .traces import save_trace

STYLES = {
    "accepted": "bold blue",
    "correction": "yellow underline",
    "bonus": "cyan",
    "plain": "default",
    "rejected": "dim strike",
}


def parse_params(pairs: list[str]) -> dict[str, str]:
    """``["gamma=7"] -> {"gamma": "7"}``"""
    out = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--param needs NAME=VALUE, for instance gamma=7, not {pair!r}.")
        out[name.strip().replace("-", "_")] = value.strip()
    return out


def run_race(args: argparse.Namespace) -> int:
    """The ``race`` command; see ``__main__``."""
    from .request import Request, Sampling

    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    sampling = Sampling(
        args.temperature, args.top_k, args.top_p, args.min_p, args.repetition_penalty, args.seed
    )
    request = Request(
        prompt,
        args.method,
        parse_params(args.param),
        sampling,
        args.max_new_tokens,
        args.rule,
        tuple(args.stop),
        record=args.trace is not None or not args.json,
        check=args.check,
    )  # everything a person can get wrong is refused before the model loads
    from .drafters import METHODS
    from .engine import load_engine, race
    from .models.pairs import get_pair, with_drafter

    pair = with_drafter(get_pair(args.pair), args.drafter)
    if why := METHODS[args.method].refuse_pair(pair):
        raise UserError(why)
    if args.trace and (args.trace.is_dir() or not args.trace.parent.is_dir()):
        raise UserError(
            f"The trace cannot be written to {args.trace}; name a file in a folder that is there."
        )
    stream = sys.stderr if args.json else sys.stdout
    # in a file no table is cut
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else 120)
    # to be seen where the text goes into a file
    with Console(file=sys.stderr).status("Loading") as status:
        engine = load_engine(
            pair,
            args.dtype,
            args.device,
            lambda message, part: status.update(
                message if part is None else f"{message} {part:.0%}"
            ),
        )
    if console.is_terminal:
        console.print(_legend())
    events: list[Event] = []
    printer = Printer(console)
    try:
        for event in race(engine, request):
            events.append(event)
            printer.show(event)
    except (KeyboardInterrupt, UserError):
        if events:
            console.print()
        if events and args.trace:
            save_trace(events, args.trace)
            print(f"specdemo: what was written is in {args.trace}", file=sys.stderr)
        raise
    _summary(console, events[-1])
    if args.trace:
        save_trace(events, args.trace)
    if args.json:
        print(json.dumps(events[-1].to_dict()["result"], ensure_ascii=False))
    return 0


def _legend() -> Text:
    words = {
        "accepted": "accepted draft",
        "correction": "target's correction",
        "bonus": "bonus token",
        "plain": "plain token",
        "rejected": "rejected draft",
    }
    return Text.assemble(
        "The speculative lane: ", *((f" {word} ", STYLES[source]) for source, word in words.items())
    )


class Printer:
    """Prints the speculative lane as it grows. Model text is printed as text: markup in it is never
    interpreted.

    Rejected drafts are shown, before what replaced them, only on a terminal: in a file they could
    not be told from the answer.
    """

    def __init__(self, console: Console):
        self.console, self.vocab, self.draft = console, {}, DraftMade()

    def show(self, event: Event) -> None:
        self.vocab.update(getattr(event, "vocab", {}))
        if isinstance(event, Prefill) and event.lane == "spec":
            self._print(event.text, "plain")
        elif isinstance(event, DraftMade):
            self.draft = event
        elif isinstance(event, Verify):
            last = max((k["node"] for k in event.kept if k["node"] is not None), default=-1)
            fallen = [
                i
                for i, word in enumerate(event.status)
                if word == "rejected" and self.draft.parent[i] == last
            ]
            for kept in event.kept:
                if kept["node"] is None and fallen and self.console.is_terminal:
                    self._print(self.vocab.get(str(self.draft.tokens[fallen[0]]), ""), "rejected")
                self._print(kept["text"], kept["source"])

    def _print(self, text: str, source: str) -> None:
        self.console.print(Text(text, STYLES[source]), end="", soft_wrap=True)


def _summary(console: Console, done: Done) -> None:
    r = done.result
    ar, spec = r["ar"], r["spec"]
    console.print("\n")
    table = Table(
        title=f"{r['method']} on {r['pair']}, {r['dtype']}, {r['hardware']}", title_justify="left"
    )
    for column in (
        "lane",
        "tokens",
        "tok/s",
        "seconds",
        "first",
        "rounds",
        "tok/round",
        "kept/round",
    ):
        table.add_column(column, justify="right" if column != "lane" else "left")
    table.add_row(
        "plain",
        str(ar["tokens"]),
        f"{ar['tokens_per_second']:.1f}",
        f"{ar['seconds']:.2f}",
        f"{ar['ttft_seconds']:.2f}",
        str(ar["tokens"] - 1),
        "1",
        "0",
    )
    table.add_row(
        "speculative", str(spec["tokens"]), f"{spec['tokens_per_second']:.1f}", f"{spec['seconds']:.2f}", f"{spec['ttft_seconds']:.2f}",
        str(spec["rounds"]), f"{spec['tokens_per_round']:.2f}", f"{spec['accepted_per_round']:.2f}",
    )  # fmt: skip
    console.print(table)
    for line in verdict(r):
        console.print(Text(line))


def print_models(states: list[dict[str, Any]]) -> None:
    """The ``models`` command: a block for each pair, what is missing in words."""
    console = Console(highlight=False)
    for state in states:
        console.print(
            Text.assemble(
                (state["id"], "bold"),
                "  ",
                state["title"],
                "  ",
                (state["state"], "green" if state["state"] == "ready" else "yellow"),
            )
        )
        drafters = (
            ", ".join(
                kind if here else f"{kind} (not here)" for kind, here in state["drafters"].items()
            )
            or "none"
        )
        rows = (
            ("size", state["size"]),
            ("runs on", state["hardware"]),
            ("types", ", ".join(state["dtypes"])),
            ("drafters", drafters),
            ("license", state["license"]),
        )
        for name, value in rows:
            console.print(Text(f"  {name}: {value}"), soft_wrap=True)
        for missing in state["missing"]:
            console.print(Text(f"  missing: {missing}"), soft_wrap=True)


def verdict(r: dict[str, Any]) -> list[str]:
    """The outcome in sentences; slower is said as plainly as faster."""
    lines = []
    if r["speedup"]:
        lines.append(
            f"{_speed(r)} (predicted from the measured costs: {r['predicted_speedup'] or 0:.2f})."
        )
    if r["identical"]:
        lines.append("Both lanes wrote exactly the same tokens.")
    elif r["identical"] is False:
        lines.append(
            f"The lanes differ from token {r['first_difference']['position']}"
            f" on{_apart(r['first_difference']['top2_gap'])}."
        )
    else:
        lines.append(
            "This rule keeps the target's distribution, not the sample, so the two texts may"
            " differ."
        )
    if exact := r.get("exact"):
        same = (
            "bit for bit identical"
            if exact["identical"]
            else (
                f"{exact['unequal']} of {exact['positions']} rows differ (by at most"
                f" {exact['max_difference']:.3g})"
            )
        )
        lines.append(
            f"Against decoding one token a pass at width {exact['reference_width']}: {same}."
        )
        other = exact["one_row"]["first_difference"]
        lines.append(
            "Against the one-row kernel: "
            + (
                "identical."
                if other is None
                else f"first difference at token {other['position']}{_apart(other['top2_gap'])}."
            )
        )
    if r.get("note"):
        lines.append(r["note"])
    return lines


def _speed(r: dict[str, Any]) -> str:
    """The speed-up, and what it is taken against where that is not the lane in the table."""
    pace, plain = f"{r['speedup']:.2f} times", r["ar"]
    if r["method"] == "ar":
        return f"{pace} the speed of plain decoding: nothing is drafted, so what differs is noise"
    kernel = plain["one_row_tokens_per_second"]
    against = "plain decoding" + (
        f"'s faster one-row kernel at {kernel:.1f} tok/s"
        if kernel > 1.03 * plain["tokens_per_second"]
        else ""
    )
    if pace == "1.00 times":
        return f"As fast as {against}"
    return (
        f"{pace} faster than {against}"
        if r["speedup"] > 1
        else f"{pace} the speed of {against}, so slower: drafting did not pay here"
    )


def _apart(gap: float | None) -> str:
    """How near the choice was where two texts part."""
    return (
        ""
        if gap is None
        else f"; the two best choices were {gap:.3g} apart there"
        + (", a near-tie of different kernels" if gap < 0.5 else "")
    )
