"""The command line of ``python -m specdemo train``, and what a resumed run keeps of it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import UserError, shown
from ..models.dflash_layout import FORM
from ..models.kinds import DRAFTER_KINDS
from ..models.pairs import WHERE_NONE, get_pair
from ..models.spread import one_device
from ..models.validate import MAX_BLOCK, MAX_RANK
from ..request import LAST_SEED
from .compiling import worth_compiling
from .markov import RANK
from .recipes import LABELS, SHAPES, add_loss_options, add_rate_options, apply_preset, check_recipe
from .settings import Settings

# what --start takes besides a drafter folder
STARTS = ("random", "target-layers")
DRAFT_VOCAB = 16384  # tokens that a drafter of our own shape may propose
# options that a resumed run keeps; asking for another value is refused
KEPT = (
    "kind",
    "layers",
    "block_size",
    "lengths",
    "streak_from",
    "labels",
    "batch",
    "anchors",
    "lr",
    "average",
    "reuse",
    "keep",
    "shares",
    "beta",
    "gamma_d",
    "loss",
    "inverse_t",
    "exact_from",
    "seed",
    "start",
    "draft_vocab",
    "rank",
    "lora_rank",
    "shape",
)
# those of them that stand neither in the checkpoint's settings nor in its config
GIVEN = ("start", "draft_vocab", "rank", "lora_rank")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``python -m specdemo train``."""
    _add_run_options(parser.add_argument_group("the run"))
    _add_drafter_options(parser.add_argument_group("the drafter"))
    add_loss_options(parser.add_argument_group("blocks and loss"))
    add_rate_options(parser.add_argument_group("learning rate"))
    _add_evaluation_options(parser.add_argument_group("evaluation"))


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    default = Settings()
    group.add_argument(
        "--kind",
        choices=tuple(DRAFTER_KINDS),
        help="what the drafter is trained for (default: block, or the kind that is resumed)",
    )
    group.add_argument(
        "--pair",
        help=f"the target, an id of models.yaml, any Llama- or Qwen-type model ({WHERE_NONE})",
    )
    group.add_argument("--corpus", help="folder written by `python -m specdemo corpus` (needed)")
    group.add_argument(
        "--out",
        help="folder for checkpoint, curve and the finished drafter (default: runs/PAIR-KIND)",
    )
    group.add_argument(
        "--minutes",
        type=float,
        default=default.minutes,
        help="budget of wall-clock time, evaluations included",
    )
    group.add_argument(
        "--steps", type=int, default=0, help="budget in steps instead, which makes a run repeatable"
    )
    group.add_argument(
        "--resume",
        metavar="DIR",
        help=(
            "go on from the checkpoint in DIR (it keeps its settings; --minutes or --steps may be"
            " raised)"
        ),
    )
    group.add_argument(
        "--save-minutes",
        type=float,
        default=default.save_minutes,
        help="minutes from one checkpoint to the next (default %(default)g)",
    )
    group.add_argument(
        "--keep-every",
        type=int,
        default=0,
        metavar="STEPS",
        help="also write the drafter as it is every so many steps, to OUT/steps (default: never)",
    )
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--device", type=one_device, default=None)
    group.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=(
            "compile the drafter's pass, which takes half a minute (default: from 5 minutes or 500"
            " steps on, where a C++ compiler is found)"
        ),
    )
    _add_reading_options(group)
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_reading_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--reuse",
        type=int,
        default=0,
        metavar="N",
        help=(
            "use each row N times, with other anchors, for one reading by the target (default: 4"
            " on a CPU, 1 on a GPU)"
        ),
    )
    group.add_argument(
        "--keep",
        type=float,
        default=-1.0,
        metavar="GB",
        help=(
            "memory for what the target said about rows that are used again (default: 1.5 on a"
            " CPU, 0 on a GPU)"
        ),
    )


def _add_drafter_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--start",
        default="target-layers",
        help=("drafter folder (kind diffusion-lm: such a model's), `target-layers` or `random`"),
    )
    group.add_argument(
        "--shape",
        choices=SHAPES,
        help=(
            "own; dflash: as DFlash publishes it, which vLLM, SGLang and llama.cpp load; text: it"
            " reads the text itself and nothing of the target's states; kind diffusion-lm: a2d, or"
            " dream, whose rows speak about the next position (default: own, a2d, or that of the"
            " --start folder)"
        ),
    )
    group.add_argument(
        "--layers",
        type=int,
        default=0,
        help=(
            "drafter layers (default 4, or those of the --start folder; kind diffusion-lm: the"
            " target's)"
        ),
    )
    group.add_argument(
        "--block-size",
        type=int,
        default=0,
        help="slots of a block, anchor included (default 16, or that of the --start folder)",
    )
    group.add_argument(
        "--rank",
        type=int,
        default=0,
        help=f"inner width of a new Markov head (kind markov; default {RANK})",
    )
    group.add_argument(
        "--lora-rank",
        type=int,
        default=0,
        help=(
            "kind diffusion-lm: train adapters of this rank alone (LoRA, by the package peft),"
            " merged into the weights that are written; 0 = all weights"
        ),
    )
    group.add_argument(
        "--draft-vocab",
        type=int,
        default=-1,
        help=(
            f"how many of the target's most used tokens may be drafted; 0 = all (default:"
            f" {DRAFT_VOCAB}, or all with --shape dflash)"
        ),
    )


def _add_evaluation_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prompts",
        help=(
            "JSONL of held-out prompts (`turns`, `category`) the drafter is evaluated on; default:"
            " held-out rows of the corpus"
        ),
    )
    group.add_argument(
        "--eval-rows",
        type=int,
        default=24,
        help="held-out rows it is evaluated on where there is no --prompts",
    )
    group.add_argument(
        "--eval-minutes",
        type=float,
        default=Settings().eval_minutes,
        help=(
            "minutes from one evaluation to the next (default %(default)g; each takes its time from"
            " the budget)"
        ),
    )


def settings_of(args: argparse.Namespace, on_gpu: bool) -> Settings:
    """The command line as :class:`Settings`.

    Raises:
        UserError: a value is out of range, or does not go with the kind.
    """
    check_ranges(args)
    kind = args.kind or "block"
    about = DRAFTER_KINDS[kind]
    settings = Settings(
        kind=kind,
        minutes=args.minutes,
        steps=args.steps,
        batch=args.batch or (64 if on_gpu else 4 if kind in ("ar", "diffusion-lm") else 2),
        anchors=args.anchors or (1 if kind == "diffusion-lm" else 48),
        lr=args.lr or (about.learning_rate if args.start in STARTS else about.finetune_rate),
        mix=LABELS[args.labels or ("hard" if kind == "diffusion-lm" else "mix")],
        shares=tuple(args.shares),
        beta=args.beta,
        gamma_d=args.gamma_d,
        loss=args.loss,
        inverse_t=args.inverse_t,
        exact_from=args.exact_from,
        lengths=tuple(args.lengths),
        streak_from=args.streak_from,
        decay_from=args.decay_from,
        average=args.average,
        reuse=args.reuse or (1 if on_gpu else 4),
        keep=args.keep if args.keep >= 0 else 0.0 if on_gpu else 1.5,
        save_minutes=args.save_minutes,
        eval_minutes=args.eval_minutes,
        seed=args.seed,
    )
    settings.compile = worth_compiling(settings) if args.compile is None else args.compile
    return settings


# option: lowest and highest value; 0 stands for a default where the lowest is 0 (see --help)
LIMITS: dict[str, tuple[float, float]] = {
    "minutes": (0, 1e6),
    "steps": (0, 10**9),
    "save_minutes": (0, 1e6),
    "eval_minutes": (0, 1e6),
    "seed": (0, LAST_SEED),
    "layers": (0, 1000),
    "block_size": (0, MAX_BLOCK),
    "rank": (0, MAX_RANK),
    "draft_vocab": (-1, 10**9),
    "batch": (0, 10**6),
    "anchors": (1, 10**6),
    "lora_rank": (0, 1024),
    "lr": (0, 1),
    "eval_rows": (1, 10**6),
    "streak_from": (-1, 1),
    "exact_from": (0, 1),
    "beta": (0, 1),
    "gamma_d": (0, 1000),
    "keep_every": (0, 10**9),
    "decay_from": (0, 1),
    "average": (0, 0.999999),
    "reuse": (0, 1000),
    "keep": (-1, 1e6),
}


def check_ranges(args: argparse.Namespace) -> None:
    """Raises UserError: a number is out of its range, or options do not go together. A preset's
    values are put in their places first.
    """
    apply_preset(args, defaults())
    for name, (low, high) in LIMITS.items():
        value = getattr(args, name)
        if value is not None and not low <= value <= high:  # NaN is never between them
            raise UserError(
                f"--{name.replace('_', '-')} must be from {low:,} to {high:,}, not {shown(value)}."
            )
    if not args.minutes and not args.steps:
        raise UserError("--minutes must be above 0.")
    if args.block_size == 1:
        raise UserError("--block-size must be at least 2: an anchor and a mask.")
    if args.shape == "dflash" and (args.kind in ("ar", "markov") or args.draft_vocab > 0):
        what = f"--kind {args.kind}" if args.draft_vocab <= 0 else "a --draft-vocab"
        dspark = " (DSpark's head, which engines load, is not trained here)"
        raise UserError(
            f"DFlash's layout has no {what}{dspark if args.kind == 'markov' else ''}; leave it out,"
            " or leave --shape dflash out."
        )
    check_recipe(args)


def shape_name(config: dict[str, Any]) -> str:
    """Which of :data:`SHAPES` a drafter's config has."""
    if config.get("layout") in SHAPES:
        return config["layout"]
    if config.get("context") == "text":
        return "text"
    return SHAPES[all(config.get(name) == value for name, value in FORM.items())]


def defaults() -> argparse.Namespace:
    """What every option has where it is not given."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([])


def resumed_settings(args: argparse.Namespace, state: dict[str, Any]) -> Settings:
    """The checkpoint's settings with the command line's budget and intervals.

    Raises:
        UserError: an option asks for another value than the one the run keeps.
    """
    check_resumed(args, state)
    settings = Settings.from_checkpoint(state["settings"])
    if settings.steps and not args.steps and args.minutes != Settings.minutes:
        raise UserError(
            f"The run in {args.resume} counts steps, not minutes; raise --steps to train on."
        )
    if args.steps or not settings.steps:
        settings.minutes, settings.steps = args.minutes, args.steps
    settings.compile = worth_compiling(settings) if args.compile is None else args.compile
    settings.decay_from = args.decay_from or settings.decay_from
    settings.eval_minutes, settings.save_minutes = args.eval_minutes, args.save_minutes
    return settings


def check_resumed(args: argparse.Namespace, state: dict[str, Any]) -> None:
    """A resumed run keeps its settings, so an option that asks for another value is refused rather
    than dropped.
    """
    had = {
        **asdict(Settings.from_checkpoint(state["settings"])),
        "layers": state["config"]["num_hidden_layers"],
        "block_size": state["config"].get("block_size"),
        "shape": shape_name(state["config"]),
        # a checkpoint from before they were kept says nothing about them
        **(state.get("given") or {name: getattr(args, name) for name in GIVEN}),
    }
    had["labels"] = next(name for name, mix in LABELS.items() if mix == had["mix"])
    had |= {name: list(had[name]) for name in ("lengths", "shares")}
    for name, default in vars(defaults()).items():
        if name in KEPT and getattr(args, name) not in (default, had.get(name)):
            raise UserError(
                f"The run in {args.resume} has --{name.replace('_', '-')} {had.get(name)}, which a"
                " resumed run keeps; leave the option out, or begin another run with another"
                " --out."
            )


def output_dir(args: argparse.Namespace) -> Path:
    """Where the run is kept: --out, or the folder that is resumed, or runs/PAIR-KIND."""
    return Path(args.out or args.resume or f"runs/{get_pair(args.pair).id}-{args.kind or 'block'}")
