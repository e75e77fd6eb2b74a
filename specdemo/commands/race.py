"""``specdemo race``: one prompt, answered plainly and with a drafter, in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..console import phases, print_json
from ..drafters import METHODS
from ..drafters.parts.params import parse_assignments
from ..errors import UserError
from ..events import Done, Event, Start
from ..files import check_output
from ..prompts import MAX_BYTES, decode_prompt
from ..request import RULES, Request, Sampling
from ..terminal import Printer, print_legend, print_summary
from ..traces import save_trace
from .options import SENT_ELSEWHERE, add_dtype, add_pair, pair_of, refuse_own_options

if TYPE_CHECKING:
    from ..attached.race import Attached
    from ..engine import Engine

DEFAULT_METHOD = "best"
OWN_OPTIONS = ("method", "param", "against", "against_param", "dtype", "device", "remeasure")
FILE_WIDTH = 120  # columns of the summary where the output is a file, so that no table is cut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``race``."""
    add = parser.add_argument
    add(
        "prompt",
        help="the question; “-” reads it from standard input, where one newline at its end goes",
    )
    add_pair(parser)
    add(
        "--method",
        metavar="NAME",
        help=f"how drafts are made: {', '.join(METHODS)} (default: {DEFAULT_METHOD})",
    )
    add(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the method, for instance gamma=7 (docs/methods.md); may be repeated",
    )
    _add_left_lane(parser)
    add(
        "--rule",
        default="match",
        metavar="RULE",
        help=f"how drafted tokens are accepted: {', '.join(RULES)} (default: %(default)s)",
    )
    add("--stop", action="append", default=[], metavar="TEXT", help="end the answer before this"
        " text; may be repeated")  # fmt: skip
    add_dtype(parser)
    add(
        "--device",
        metavar="D",
        help="cpu, cuda or auto: all GPUs, then memory (default: cuda where there is one)",
    )
    _add_sampling(parser)
    add(
        "--check",
        default="",
        choices=("exact",),
        help="also decode one token a pass and compare the logits bit for bit",
    )
    add("--trace", type=Path, metavar="FILE", help="save all events of the race, for replay")
    add(
        "--json",
        action="store_true",
        help="print the result as one JSON object on stdout (the answer goes to stderr)",
    )


def _add_left_lane(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        metavar="NAME",
        help="a method for the left lane; plain decoding runs beside the two (default: plain"
        " decoding is the left lane)",
    )
    parser.add_argument(
        "--against-param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of that method; may be repeated",
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    def add(name: str, kind: type, default: float, text: str) -> None:
        parser.add_argument(
            name, type=kind, default=default, metavar="X", help=f"{text} (default: %(default)s)"
        )

    add("--max-new-tokens", int, 128, "at most this many new tokens")
    add("--temperature", float, 0.0, "sampling temperature; 0 is greedy")
    add("--top-k", int, 0, "sample from the k likeliest tokens; 0 is off")
    add("--top-p", float, 1.0, "nucleus sampling: the likeliest tokens with this much probability")
    add("--min-p", float, 0.0, "drop tokens below this share of the likeliest one's probability")
    add("--repetition-penalty", float, 1.0, "divide the logits of tokens already written by this")
    add("--seed", int, 0, "seed of the random draws")


def race_main(args: argparse.Namespace) -> int:
    """Race, print the answer as it grows, then the summary. Whatever a person can get wrong is
    refused before the model loads.
    """
    request = _request(args)
    stream = sys.stderr if args.json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else FILE_WIDTH)
    engine = _load(args, request)
    events = _race(engine, request, console, args.trace)
    start, done = events[0], events[-1]
    assert isinstance(start, Start) and isinstance(done, Done)  # no other events are there
    print_summary(console, done.result, start)
    if args.json:
        print_json(done.to_dict()["result"])
    if args.trace:  # last, so that a full disk costs nothing but the file
        _save(events, args.trace)
    return 0


def _request(args: argparse.Namespace) -> Request:
    """Raises UserError, also where the trace could not be written."""
    request = Request(
        prompt=_standard_input() if args.prompt == "-" else args.prompt,
        method=args.method or DEFAULT_METHOD,
        params=parse_assignments(args.param),
        sampling=Sampling(
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            min_p=args.min_p,
            repetition_penalty=args.repetition_penalty,
            seed=args.seed,
        ),
        max_new_tokens=args.max_new_tokens,
        rule=args.rule,
        stop=tuple(args.stop),
        record=args.trace is not None or not args.json,
        check=args.check,
        against=args.against or "",
        against_params=parse_assignments(args.against_param),
    )
    if args.trace:
        check_output(args.trace, "The trace")
    return request


def _standard_input() -> str:
    """Raises UserError: it is closed, or no text."""
    if sys.stdin is None:
        raise UserError("Standard input is closed; pipe the prompt in, or name it instead of “-”.")
    stream = getattr(sys.stdin, "buffer", None)
    try:
        # one byte more than a prompt may have, which is then refused
        return decode_prompt(stream.read(MAX_BYTES + 1)) if stream else sys.stdin.read()
    except OSError as error:
        raise UserError(
            f"Standard input cannot be read ({error.strerror}); pipe the prompt in."
        ) from None


def _load(args: argparse.Namespace, request: Request) -> Engine | Attached:
    pair = pair_of(args)
    if pair.engine is not None:
        refuse_own_options(args, *OWN_OPTIONS)
        from ..attached.race import attach, refuse

        refuse(request)
        attached = attach(pair.id, pair.engine)
        print(SENT_ELSEWHERE, file=sys.stderr)
        return attached
    methods = [METHODS[name] for name in (args.method or DEFAULT_METHOD, args.against) if name]
    for method in methods:
        if why := method.refuse_pair(pair):
            raise UserError(why)
    with phases() as say:  # on stderr, to be seen also where the answer goes into a file
        say("Loading", None)
        from ..engine import load_engine  # torch alone takes seconds

        roles = [method.role(pair) for method in methods]
        drafters = tuple(dict.fromkeys(role for role in roles if role is not None))
        return load_engine(pair, args.dtype, args.device, say, args.remeasure, drafters)


def _events(engine: Engine | Attached, request: Request) -> Iterator[Event]:
    from ..attached import race as attached

    if isinstance(engine, attached.Attached):
        return attached.race(engine, request)
    from ..engine import race

    return race(engine, request)


def _race(
    engine: Engine | Attached, request: Request, console: Console, trace: Path | None
) -> list[Event]:
    """The events of the race, shown as they come; saved where a person or an error ends it."""
    if console.is_terminal:
        print_legend(console)
    printer = Printer(console)
    events: list[Event] = []
    try:
        for event in _events(engine, request):
            events.append(event)
            printer.show(event)
    except (KeyboardInterrupt, UserError):
        if events:
            console.print()
        if events and trace:
            _save(events, trace)
            print(f"specdemo: what was written is in {trace}", file=sys.stderr)
        raise
    return events


def _save(events: list[Event], trace: Path) -> None:
    if note := save_trace(events, trace):
        print(f"specdemo: {note}", file=sys.stderr)
