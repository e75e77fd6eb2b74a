"""The command line: ``specdemo COMMAND`` or ``python -m specdemo COMMAND``. It only parses and
delegates: each command has a module with ``add_arguments`` and ``<command>_main``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from contextlib import nullcontext
from typing import Any, NoReturn

from .console import note_if_slow, printable
from .errors import run_command

COMMANDS = {  # name: (module, what it does)
    "race": (
        "specdemo.commands.race",
        "answer one prompt twice, plainly and with a drafter, and compare",
    ),
    "models": ("specdemo.commands.models", "list the pairs and what is missing to run them"),
    "bench": ("specdemo.bench.cli", "measure methods on a file of prompts"),
    "sweep": (
        "specdemo.bench.sweep.cli",
        "measure a method against one of its settings, as the papers' figures do",
    ),
    "device": (
        "specdemo.bench.device",
        "measure this machine: trusted widths, pass times, a few checked races",
    ),
    "corpus": ("specdemo.training.corpus", "let the target write training text"),
    "train": ("specdemo.training.train", "train a drafter for a target"),
    "ngram": (
        "specdemo.commands.ngram",
        "count the n-grams of a task's text, for DiffuSpec's path search",
    ),
    "load": (
        "specdemo.commands.load",
        "measure both endpoints of a serving engine under more and more streams",
    ),
    "serve-example": (
        "specdemo.commands.serve_example",
        "print commands that start both endpoints of a serving engine (docs/engines.md)",
    ),
    "export-drafter": (
        "specdemo.commands.export_drafter",
        "write a drafter as other engines load it: DFlash's published folder, or GGUF",
    ),
    "export": (
        "specdemo.commands.export",
        "turn a trace into a page that works offline, a picture or an animation",
    ),
}

HEAVY = ("corpus", "train")  # these import torch at once
LONGEST = 300  # characters of a complaint that quotes what was typed


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = refused (one sentence on stderr), 130 = interrupted."""
    words = sys.argv[1:] if argv is None else argv

    def work() -> int | None:
        args, unknown = _parser(words[:1]).parse_known_args(words)
        if unknown:  # said by the command, whose help it is that lists what it knows
            command = Parser(prog=f"specdemo {args.command}")
            command.error(f"unrecognized arguments: {' '.join(unknown)}")
        return args.run(args)

    return run_command(work)


class Once(argparse.Action):
    """What a command line names twice is refused, instead of the last value being taken."""

    _filled: argparse.Namespace | None = None

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string and self._filled is namespace:
            parser.error(f"{option_string} is there twice; give it once")
        self._filled = namespace
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the whole usage before it."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.register("action", None, Once)  # of every option that names no other

    def error(self, message: str) -> NoReturn:
        if len(message) > LONGEST:
            message = f"{message[:LONGEST]}…"
        self.exit(2, f"specdemo: {printable(message)}; “{self.prog} --help” says what there is.\n")


def _parser(command: list[str]) -> argparse.ArgumentParser:
    """The parser of all commands. Only the module of ``command`` (its name, or nothing) is
    imported, since some take seconds.
    """
    parser = Parser(
        prog="specdemo",
        description="A diffusion drafter speeds up a language model without changing its answer:"
        " race both, measure them, train a drafter.",
        epilog="“specdemo COMMAND --help” explains a command; “python app.py” starts the page.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, what) in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=what, description=f"{what[0].upper()}{what[1:]}."
        )
        if command == [name]:
            with note_if_slow("Loading") if name in HEAVY else nullcontext():
                loaded = importlib.import_module(module)
            loaded.add_arguments(subparser)
            subparser.set_defaults(run=getattr(loaded, f"{name.replace('-', '_')}_main"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
