"""Options that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from ..models.pairs import Pair

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
        "--thinking",
        choices=("on", "off"),
        help="turn the thinking mode of a target on or off, where its chat template knows"
        " enable_thinking (default: as models.yaml says, or the template)",
    )
    parser.add_argument(
        "--remeasure",
        action="store_true",
        help="measure and check the target again, instead of what is known from an earlier load",
    )


def pair_of(args: argparse.Namespace) -> Pair:
    """The pair that the options of :func:`add_pair` name.

    Raises:
        UserError: there is none.
    """
    from ..models.own_pair import chosen_pair

    return chosen_pair(args.pair, args.target, args.drafter, thinking_of(args.thinking))


def thinking_of(given: str | None) -> bool | None:
    """What “on”, “off” or nothing says."""
    return None if given is None else given == "on"


def refuse_own_options(args: argparse.Namespace, *names: str) -> None:
    """Raises UserError: an option that a serving engine has for itself was given."""
    for name in names:
        if getattr(args, name, None):
            raise UserError(
                f"A serving engine drafts and computes by itself; leave --{name.replace('_', '-')}"
                " out, or choose a pair that runs here."
            )
