"""Options that several commands share."""

from __future__ import annotations

import argparse

from ..errors import UserError

SENT_ELSEWHERE = "specdemo: the prompt is sent to the engine that models.yaml names."


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Which target and drafter: ``--pair``, and ``--drafter`` in the place of its own."""
    parser.add_argument(
        "--pair",
        default="smollm2-135m",
        metavar="ID",
        help="target and drafter, see “specdemo models” (default: %(default)s)",
    )
    parser.add_argument(
        "--target",
        metavar="DIR_OR_ID",
        help="a target of your own instead of a pair's: a folder, or a hub id owner/name",
    )
    parser.add_argument(
        "--drafter",
        metavar="DIR_OR_ID",
        help="a drafter's folder (as “train” writes it, or a published one) or hub id, instead of"
        " the pair's own",
    )
    parser.add_argument(
        "--remeasure",
        action="store_true",
        help="measure and check the target again, instead of what is known from an earlier load",
    )


def refuse_own_options(args: argparse.Namespace, *names: str) -> None:
    """Raises UserError: an option that a serving engine has for itself was given."""
    for name in names:
        if getattr(args, name, None):
            raise UserError(
                f"A serving engine drafts and computes by itself; leave --{name.replace('_', '-')}"
                " out, or choose a pair that runs here."
            )
