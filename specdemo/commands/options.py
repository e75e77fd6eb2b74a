"""Options that several commands share."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import UserError
from ..models.pairs import WHERE_NONE
from ..paths import given_path

if TYPE_CHECKING:
    from ..models.pairs import Pair

SENT_ELSEWHERE = "specdemo: the prompt is sent to the engine that models.yaml names."


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Which target and drafter: ``--pair``, and ``--drafter`` in the place of its own."""
    parser.add_argument(
        "--pair",
        metavar="ID",
        help=f"target and drafter, see “specdemo models” ({WHERE_NONE})",
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
        "--ngram",
        metavar="FILE",
        help="counts of a task's n-grams that “specdemo ngram” wrote, for diffuspec, instead of the"
        " pair's own",
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


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """``--dtype``, by the names of models.yaml or torch's."""
    parser.add_argument(
        "--dtype",
        choices=("bf16", "fp32", "fp16", "int4", "8bit", "4bit", "bfloat16", "float32", "float16"),
        metavar="D",
        help="bf16, fp32, fp16, int4 (weights of 4 bits on a CPU), 8bit or 4bit (stored so by"
        " bitsandbytes); default: bf16 where the processor computes in it, else fp32",
    )


def pair_of(args: argparse.Namespace) -> Pair:
    """The pair that the options of :func:`add_pair` name.

    Raises:
        UserError: there is none.
    """
    from ..models.own_pair import chosen_pair

    pair = chosen_pair(args.pair, args.target, args.drafter, thinking_of(args.thinking))
    if args.ngram is None:
        return pair
    if pair.engine is not None:
        raise UserError(f"An engine serves {pair.id}, which drafts by itself; leave --ngram out.")
    return replace(pair, ngram=str(given_path(args.ngram, "The n-gram file").resolve()))


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
