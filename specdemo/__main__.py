"""The command line: ``specdemo COMMAND`` or ``python -m specdemo COMMAND``. It only parses and
delegates: each command has a module with ``add_arguments`` and ``<command>_main``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import NoReturn

from .console import printable
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
    "load": (
        "specdemo.commands.load",
        "measure both endpoints of a serving engine under more and more streams",
    ),
    "serve-example": (
        "specdemo.commands.serve_example",
        "print commands that start both endpoints of a serving engine (docs/engines.md)",
    ),
    "export": ("specdemo.commands.export", "turn a trace into one HTML page that works offline"),
}

LONGEST = 300  # characters of a complaint that quotes what was typed


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = refused (one sentence on stderr), 130 = interrupted."""
    words = sys.argv[1:] if argv is None else argv

    def work() -> int | None:
        args = _parser(words[:1]).parse_args(words)
        return args.run(args)

    return run_command(work)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the whole usage before it."""

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
            loaded = importlib.import_module(module)
            loaded.add_arguments(subparser)
            subparser.set_defaults(run=getattr(loaded, f"{name.replace('-', '_')}_main"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
