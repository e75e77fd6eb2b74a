"""What blocks a drafter is trained on and with which loss: the options, and the papers' settings by
name.

Sources: DFlash (arXiv 2602.06036, section 4.2 and appendix A.1), D²SD (section 3.4, Eq. 6 and 7; β
and the decay from the recipe its authors released, the paper names none), MDLM (arXiv 2406.07524,
the continuous-time bound), SpecDiff-2 (arXiv 2511.00606, section 5.1, Eq. 6).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from ..models.kinds import DRAFTER_KINDS
from .settings import LOSSES, Settings

# of a block drafter; of a stand-alone diffusion language model
BLOCK_SHAPES = ("own", "dflash", "text")
SHAPES = (*BLOCK_SHAPES, "a2d", "dream")
LABELS = {"hard": 0.0, "soft": 1.0, "mix": 0.5}


@dataclass(frozen=True)
class Preset:
    """A paper's settings.

    Attributes:
        options: values of options of ``train`` that are left at their defaults.
        beyond: what the paper does besides that is not done here, for the command's output.
        temperatures: the corpus it needs, None = any.
        alone: ``beyond`` where the drafter is a stand-alone diffusion language model, as the
            paper's is; None: it is not for such a model.
    """

    options: dict[str, Any]
    beyond: str
    temperatures: tuple[float, ...] | None = None
    alone: str | None = None

    def says(self, kind: str | None) -> str:
        """What the paper does beyond a run of ``kind``."""
        return self.alone if kind == "diffusion-lm" and self.alone else self.beyond


PRESETS: dict[str, Preset] = {
    "dflash": Preset(
        {
            "kind": "block",
            "shares": [1.0, 0.0, 0.0],
            "streak_from": 1.0,
            "labels": "hard",
            "lr": 6e-4,
            "batch": 4,
            "anchors": 512,
        },
        "the paper trains 6 epochs over 800 thousand prompts on rows of 3,072 tokens",
    ),
    "d2sd": Preset(
        {
            "kind": "vp",
            "shares": [0.0, 1.0, 0.0],
            "loss": "per-block",
            "beta": 0.9,
            "gamma_d": 7.0,
            "streak_from": 1.0,
            "labels": "hard",
            "lr": 6e-4,
            "batch": 4,
            "anchors": 512,
        },
        "the paper trains 6 epochs on rows of 3,072 tokens; its released recipe leaves out blocks"
        " without a visible token, the paper and this run do not",
    ),
    "mdlm": Preset(
        {
            "kind": "mdlm",
            "shares": [0.0, 0.0, 1.0],
            "loss": "nelbo",
            "streak_from": 1.0,
            "labels": "hard",
        },
        "the paper's network stands alone and masks whole texts; here it masks blocks, and without"
        " --shape text it reads the target's states (--kind diffusion-lm does as the paper)",
        alone="the paper trains a diffusion transformer from random weights on whole texts; here"
        " the prompts are never masked",
    ),
    "specdiff2": Preset(
        {
            "kind": "streak",
            "shares": [1.0, 0.0, 0.0],
            "exact_from": 0.0,
            "streak_from": 0.0,
            "labels": "hard",
            "lr": 2e-5,
        },
        "the paper tunes a stand-alone drafter of 7 B parameters with LoRA for up to 60 thousand"
        " steps at every offset of the text (--kind diffusion-lm --lora-rank R is nearer to it)",
        temperatures=(1.0,),
        alone="the paper tunes a drafter of 7 B parameters, with LoRA (--lora-rank), for up to 60"
        " thousand steps at every offset of the text",
    ),
}


def add_loss_options(group: argparse._ArgumentGroup) -> None:
    """The options about blocks and loss."""
    default = Settings()
    group.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="a paper's kind, blocks, loss and labels; options that are given as well count more",
    )
    _add_block_options(group)
    group.add_argument(
        "--loss",
        choices=LOSSES,
        default=default.loss,
        help=(
            "weighted: mean over all slots by weight; per-block: over each block's slots, then over"
            " blocks (D²SD Eq. 7); nelbo: the unbiased bound with weights 1/t (MDLM)"
        ),
    )
    group.add_argument(
        "--labels",
        choices=LABELS,
        help=(
            "true tokens, the target's distribution, or half of each (default mix; hard for kind"
            " diffusion-lm)"
        ),
    )
    _add_streak_options(group)
    group.add_argument(
        "--batch",
        type=int,
        default=0,
        help="sequences a step (default: 64 on a GPU, 2 on a CPU; ar and diffusion-lm 64 and 4)",
    )
    group.add_argument(
        "--anchors",
        type=int,
        help="blocks a sequence (default 48; 1 for kind diffusion-lm, which reads a text for each)",
    )


def _add_block_options(group: argparse._ArgumentGroup) -> None:
    default = Settings()
    group.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help=(
            "slots of the blocks it trains on, one drawn a step, repeats count (default: the block"
            " size)"
        ),
    )
    group.add_argument(
        "--shares",
        type=float,
        nargs=3,
        default=[],
        metavar=("ANCHOR", "PREFIX", "RANDOM"),
        help=(
            "shares of blocks that show the anchor alone, a variable prefix, random tokens"
            " (default: by kind)"
        ),
    )
    group.add_argument(
        "--beta",
        type=float,
        default=default.beta,
        help="variable prefix: Pr(l) ∝ β^l (default %(default)g)",
    )
    group.add_argument(
        "--gamma-d",
        type=float,
        default=default.gamma_d,
        help="decay of the position weights in slots (default: 7, 5, 4 for 16, 10, 8 slots)",
    )


def _add_streak_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--inverse-t",
        action="store_true",
        help="weigh randomly masked blocks by 1/t, at most 8 (the unbiased form: --loss nelbo)",
    )
    group.add_argument(
        "--streak-from",
        type=float,
        default=-1.0,
        metavar="SHARE",
        help=(
            "share of the budget after which the loss is the streak (default: by kind, see"
            " docs/training.md)"
        ),
    )
    group.add_argument(
        "--exact-from",
        type=float,
        default=Settings().exact_from,
        metavar="SHARE",
        help=(
            "kinds streak and diffusion-lm: share of the budget after which the streak is the"
            " paper's Eq. 6, the detached form before (default %(default)g)"
        ),
    )


def add_rate_options(group: argparse._ArgumentGroup) -> None:
    """The options about the learning rate."""
    group.add_argument(
        "--lr",
        type=float,
        default=0.0,
        help=(
            "peak learning rate (default 6e-4; 3e-4 from a drafter folder, 1e-4 for streak, 1.5e-3"
            " for markov)"
        ),
    )
    group.add_argument(
        "--decay-from",
        type=float,
        default=0.0,
        metavar="SHARE",
        help=(
            "share of the budget up to which the learning rate stays at its peak (default: it falls"
            " from the warm-up on; a resumed run may have another)"
        ),
    )
    group.add_argument(
        "--average",
        type=float,
        default=0.0,
        metavar="DECAY",
        help="evaluate and write a moving average of the weights, as 0.999 (default: none)",
    )


def apply_preset(args: argparse.Namespace, defaults: argparse.Namespace) -> None:
    """Put the preset's values where ``args`` has the command's ``defaults``.

    Raises:
        UserError: another kind is asked for.
    """
    if not args.preset:
        return
    preset = PRESETS[args.preset]
    options = preset.options
    alone = args.kind == "diffusion-lm" and preset.alone is not None
    if args.kind not in (None, options["kind"]) and not alone:
        raise UserError(
            f"--preset {args.preset} trains a drafter of kind {options['kind']}, not {args.kind};"
            " leave one of them out."
        )
    for name, value in options.items():
        if getattr(args, name) == getattr(defaults, name):
            setattr(args, name, value)


def check_corpus(preset: str | None, about: dict[str, Any]) -> None:
    """Raises UserError: the preset needs a corpus written at other temperatures than ``about``, its
    ``corpus.json``, names.
    """
    needs = PRESETS[preset].temperatures if preset else None
    if needs and tuple(about.get("temperatures", ())) != needs:
        words = " ".join(f"{t:g}" for t in needs)
        raise UserError(
            f"--preset {preset} needs text that the target wrote at temperature {words}; write it"
            f" with `python -m specdemo corpus --temperatures {words}`."
        )


def check_recipe(args: argparse.Namespace) -> None:
    """Raises UserError: options about blocks and loss do not go together, or with the kind."""
    kind = DRAFTER_KINDS[args.kind or "block"]
    if args.lengths and kind.name == "ar":
        raise UserError("An autoregressive drafter has no blocks; leave --lengths out.")
    if args.lengths and min(args.lengths) < 2:
        raise UserError("--lengths must be at least 2: an anchor and a mask.")
    shares = tuple(args.shares) or kind.block_shares
    if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise UserError("--shares are three numbers from 0 to 1 whose sum is 1.")
    if kind.name in ("ar", "markov", "streak") and args.loss != "weighted":
        raise UserError(
            f"--loss {args.loss} is for kinds block, vp, mdlm and diffusion-lm; leave it out."
        )
    _check_alone(args, kind.name, shares)
    if args.loss == "nelbo" and shares != (0.0, 0.0, 1.0):
        raise UserError("--loss nelbo is a bound for random masks alone; add --shares 0 0 1.")
    if args.loss == "nelbo" and args.inverse_t:
        raise UserError("--loss nelbo weighs by 1/t already; leave --inverse-t out.")


def _check_alone(args: argparse.Namespace, kind: str, shares: tuple[float, ...]) -> None:
    """Raises UserError: an option is for stand-alone diffusion language models only, or not for
    them.
    """
    alone, shapes = kind == "diffusion-lm", SHAPES[len(BLOCK_SHAPES) :]
    if args.shape is not None and alone != (args.shape in shapes):
        raise UserError(
            f"--shape {args.shape} is for {'block drafters' if alone else 'kind diffusion-lm'};"
            f" choose {' or '.join(shapes if alone else BLOCK_SHAPES)}, or leave it out."
        )
    if args.shape == "text" and kind == "ar":
        raise UserError("--kind ar reads the text alone in any case; leave --shape text out.")
    if not alone:
        if args.lora_rank:
            raise UserError("--lora-rank is for --kind diffusion-lm; leave one of them out.")
        return
    for given, why in (
        (args.draft_vocab > 0, "--draft-vocab: its head has all tokens"),
        (args.rank, "--rank, a Markov head's; --lora-rank is the adapters'"),
        (args.labels in ("soft", "mix"), f"--labels {args.labels}: its head is not the target's"),
        (args.compile, "--compile: its texts are of many lengths"),
    ):
        if given:
            raise UserError(f"--kind diffusion-lm has no {why}; leave it out.")
    if args.lora_rank and args.start == "random":
        raise UserError(
            "--lora-rank adapts weights that know something; give --start a folder or"
            " target-layers, or leave it out."
        )
    if 0 <= args.streak_from < 1 and shares[2]:
        raise UserError(
            "The streak is counted along blocks, and random masks are not in blocks here; add"
            " --shares 1 0 0, and start from a run with random masks (--start)."
        )
