"""``specdemo models``: which pairs there are, and what is missing to run them here."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.text import Text

from ..console import print_json, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``models``."""
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")


def models_main(args: argparse.Namespace) -> int:
    """Print every pair of ``models.yaml``."""
    from ..models.status import pair_status

    status = pair_status()
    if args.json:
        print_json(status)
    else:
        console = Console(highlight=False)
        for pair in status:
            _print_pair(console, pair)
    return 0


def _print_pair(console: Console, pair: dict[str, Any]) -> None:
    state = (pair["state"], "green" if pair["state"] == "ready" else "yellow")
    console.print(Text.assemble((pair["id"], "bold"), "  ", pair["title"], "  ", state))
    drafters = [
        kind if present else f"{kind} (not here)" for kind, present in pair["drafters"].items()
    ]
    lines = [
        ("size", pair["size"]),
        ("runs on", pair["hardware"]),
        ("types", ", ".join(pair["dtypes"])),
        ("drafters", ", ".join(drafters) or "none"),
        ("license", pair["license"]),
        *(("missing", what) for what in pair["missing"]),
    ]
    for name, value in lines:
        console.print(Text(printable(f"  {name}: {value}")), soft_wrap=True)
