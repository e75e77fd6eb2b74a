"""``specdemo models``: which pairs there are, and what is missing to run them here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ..console import print_json, printable

if TYPE_CHECKING:
    from ..models.needs import Needs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``models``."""
    parser.add_argument("--json", action="store_true", help="print one JSON list instead")
    parser.add_argument(
        "--fits",
        action="store_true",
        help="how much memory each pair needs in each of its dtypes, and whether this machine has"
        " it; nothing is fetched for that",
    )


def models_main(args: argparse.Namespace) -> int:
    """Print every pair of ``models.yaml``."""
    from ..models.status import pair_status

    if args.fits:
        return _print_fits(args.json)
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
    lines = [
        ("size", pair["size"]),
        *([("runs on", pair["hardware"])] if pair["hardware"] else []),
        *_drafting(pair),
        ("license", pair["license"]),
        *(("missing", what) for what in pair["missing"]),
    ]
    for name, value in lines:
        console.print(Text(printable(f"  {name}: {value}")), soft_wrap=True)


def _print_fits(as_json: bool) -> int:
    """Every pair of ``models.yaml``, and what it needs in each dtype."""
    from ..models.needs import fits, gigabytes, machine_memory, needs_on_a_gpu
    from ..models.pairs import load_pairs

    memories = machine_memory()
    pairs = {pair.id: pair for pair in load_pairs().values() if pair.engine is None}
    found = {id: fits(pair, memories, everywhere=True) for id, pair in pairs.items()}
    if as_json:
        print_json({id: [fit.to_dict() for fit in each] for id, each in found.items()})
        return 0
    console = Console(highlight=False)
    if not pairs:
        console.print("Engines serve all pairs of models.yaml, so they need no memory here.")
    colours = {"fits": "green", "does not fit": "red"}
    for id, each in found.items():
        console.print(Text(printable(id), "bold"))
        for fit in each:
            style = colours.get(fit.verdict, "yellow")
            console.print(Text(printable(f"  {fit.text}"), style), soft_wrap=True)
            if fit.needs is not None:
                console.print(Text(f"    {parts(fit.needs)}"), soft_wrap=True)
        if memories[0].place == "cpu" and (on_gpu := needs_on_a_gpu(pairs[id])):
            words = ", ".join(f"{gigabytes(n.total)} in {dtype}" for dtype, n in on_gpu.items())
            left = "".join(f", its {kind} drafter left out" for kind in each[0].without)
            line = f"  on a GPU (computed, not measured): about {words}{left}"
            console.print(Text(printable(line)), soft_wrap=True)
    return 0


def parts(needs: Needs) -> str:
    """What of a pair takes how much, in one line."""
    words = (
        ("target", needs.target),
        ("drafters", needs.drafters),
        ("caches of both lanes", needs.caches),
        ("logits", needs.logits),
        ("working copies while loading", needs.loading),
        ("the program", needs.program),
    )
    return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in words if size)


def _drafting(pair: dict[str, Any]) -> list[tuple[str, str]]:
    """Number types and drafters; a serving engine has its own."""
    if "drafts" in pair:
        return [("drafts with", pair["drafts"] or "not told; “drafts” in models.yaml may say it")]
    drafters = [
        kind if present else f"{kind} (not here)" for kind, present in pair["drafters"].items()
    ]
    return [
        ("types", ", ".join(pair["dtypes"])),
        ("drafters", ", ".join(drafters) or "none"),
    ]
