"""The command line: ``python -m specdemo race|models|bench|device|corpus|train|export``. It only
parses and delegates.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from .errors import UserError, run_command


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = refused (one sentence on stderr), 130 = interrupted."""
    words = sys.argv[1:] if argv is None else argv

    def work() -> int | None:
        # within: a command's module takes seconds to import
        args = _parser(words[:1]).parse_args(words)
        return args.run(args)

    return run_command(work)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the whole usage before it."""

    def error(self, message: str):
        self.exit(2, f"specdemo: {message}; “{self.prog} --help” says what there is.\n")


def _parser(command: list[str]) -> argparse.ArgumentParser:
    parser = Parser(
        prog="specdemo",
        description="A language model and its diffusion drafter race plain decoding.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    race = commands.add_parser(
        "race", help="answer one prompt twice, plainly and with a drafter, and compare"
    )
    race.add_argument("prompt", help="the question; “-” reads it from standard input")
    race.add_argument(
        "--pair", default="smollm2-135m", help="see “specdemo models” (default: %(default)s)"
    )
    race.add_argument(
        "--drafter",
        metavar="DIR",
        help="a drafter folder that “train” left, instead of the pair's own",
    )
    race.add_argument("--method", default="best", help="how drafts are made (default: %(default)s)")
    race.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the method, e.g. gamma=7; may be repeated",
    )
    race.add_argument(
        "--rule", default="match", help="match, ratio or point-mass (default: %(default)s)"
    )
    race.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    for name, kind, default in (
        ("temperature", float, 0.0),
        ("top-k", int, 0),
        ("top-p", float, 1.0),
        ("min-p", float, 0.0),
        ("repetition-penalty", float, 1.0),
        ("seed", int, 0),
    ):
        race.add_argument(
            f"--{name}", type=kind, default=default, metavar="X", help="default: %(default)s"
        )
    race.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end the answer before this text; may be repeated",
    )
    race.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="default: bfloat16 where the processor has it, else float32",
    )
    race.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    race.add_argument(
        "--check",
        default="",
        choices=("exact",),
        help="also decode one token a pass and compare bit for bit",
    )
    race.add_argument(
        "--trace", type=Path, metavar="FILE", help="save everything that happened, for replay"
    )
    race.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object as the last line of stdout (tokens go to stderr)",
    )
    race.set_defaults(run=_race)

    models = commands.add_parser("models", help="list pairs, what is there and what is missing")
    models.add_argument("--json", action="store_true")
    models.set_defaults(run=_models)

    export = commands.add_parser(
        "export", help="turn a trace into one HTML page that works offline"
    )
    export.add_argument("trace", type=Path, help="a trace saved by “race --trace” or by the page")
    export.add_argument("html", type=Path, help="the page to write")
    export.set_defaults(run=_export)

    for name, module, help in (
        ("bench", "specdemo.bench.cli", "measure methods on a file of prompts"),
        (
            "device",
            "specdemo.bench.device",
            "measure this machine: widths, passes, a few checked races",
        ),
        ("corpus", "specdemo.training.corpus", "let the target write training text"),
        ("train", "specdemo.training.train", "train a drafter for a target"),
    ):
        _delegate(commands.add_parser(name, help=help), name, module, asked=command == [name])
    return parser


def _delegate(parser: argparse.ArgumentParser, name: str, module: str, asked: bool) -> None:
    """A command that lives in its own room: its arguments and its ``NAME_main`` are imported only
    when it is asked for.
    """
    if asked:
        room = importlib.import_module(module)
        room.add_arguments(parser)
        parser.set_defaults(run=getattr(room, f"{name}_main"))


def _race(args: argparse.Namespace) -> int:
    from .terminal import run_race

    return run_race(args)


def _models(args: argparse.Namespace) -> int:
    from .models.status import pair_status
    from .terminal import print_models

    status = pair_status()
    print(json.dumps(status, ensure_ascii=False)) if args.json else print_models(status)
    return 0


def _export(args: argparse.Namespace) -> int:
    from .files import atomic_write
    from .traces import load_trace
    from .ui.export import export_html

    page = export_html([event.to_dict() for event in load_trace(args.trace)])
    if args.html.exists() and args.html.samefile(args.trace):
        raise UserError(f"{args.html} is the trace itself; name another file for the page.")
    try:
        atomic_write(args.html, page)
    except OSError as error:
        raise UserError(
            f"The page could not be written to {args.html} ({error.strerror}); choose another"
            " place."
        ) from None
    print(args.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
