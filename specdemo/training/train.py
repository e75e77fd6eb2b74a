"""``python -m specdemo train``: align a drafter to a target, within a budget of minutes, and leave
a drafter folder.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError, as_user_errors
from ..files import locked_output_dir
from ..models.ar_drafter import ArDrafter, ArDrafterConfig
from ..models.block_drafter import BlockDrafter, BlockDrafterConfig
from ..models.drafter_files import save_drafter
from ..models.kinds import DRAFTER_KINDS
from ..models.load import Loaded, load_target
from ..models.pairs import get_pair
from . import checkpoint
from .corpus import read_prompts
from .curve import draw
from .data import Corpus, draft_vocabulary, read_corpus, split
from .estimate import estimate, matrix_speed, step_flops
from .eval_text import corpus_passages, written_passages
from .evaluate import Judge
from .initialize import BLOCK, spare_token, starting_drafter
from .markov import RANK, with_head
from .model_card import write_card
from .trainer import Settings, Trainer

LABELS = {"hard": 0.0, "soft": 1.0, "mix": 0.5}
REVEALED = (1, 3, 7)
# what a resumed run keeps and knows
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
    "inverse_t",
    "seed",
    "start",
    "draft_vocab",
    "rank",
)
# those of them that stand nowhere in the checkpoint's settings and shape
GIVEN = ("start", "draft_vocab", "rank")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``python -m specdemo train``."""
    add, d = parser.add_argument, Settings()
    add(
        "--kind",
        choices=tuple(DRAFTER_KINDS),
        help="what the drafter is trained for (default: block, or the kind that is resumed)",
    )
    add(
        "--pair",
        default="smollm2-135m",
        help="the target (an id of models.yaml; any Llama- or Qwen-type model)",
    )
    add("--corpus", help="folder written by `python -m specdemo corpus` (needed)")
    add(
        "--out",
        help="folder for checkpoint, curve and the finished drafter (default: runs/PAIR-KIND)",
    )
    add(
        "--minutes",
        type=float,
        default=d.minutes,
        help="budget of wall-clock time, evaluations included",
    )
    add(
        "--steps", type=int, default=0, help="budget in steps instead, which makes a run repeatable"
    )
    add(
        "--resume",
        metavar="DIR",
        help=(
            "go on from the checkpoint in DIR (it keeps its settings; --minutes or --steps may be"
            " raised)"
        ),
    )
    add("--start", default="target-layers", help="drafter folder, `target-layers` or `random`")
    add(
        "--layers",
        type=int,
        default=0,
        help="drafter layers (default 4, or those of the --start folder)",
    )
    add(
        "--block-size",
        type=int,
        default=0,
        help="slots of a block, anchor included (default 16, or that of the --start folder)",
    )
    add(
        "--rank",
        type=int,
        default=0,
        help=f"inner width of a new Markov head (kind markov; default {RANK})",
    )
    add(
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
    add(
        "--streak-from",
        type=float,
        default=-1.0,
        metavar="SHARE",
        help=(
            "share of the budget after which the loss is the streak (default: by kind, see"
            " training/README.md)"
        ),
    )
    add(
        "--draft-vocab",
        type=int,
        default=16384,
        help="how many of the target's most used tokens may be drafted; 0 = all",
    )
    add(
        "--labels",
        choices=LABELS,
        default="mix",
        help="true tokens, the target's distribution, or half of each",
    )
    add(
        "--batch",
        type=int,
        default=0,
        help="sequences a step (default: 64 on a GPU, 2 on a CPU; ar 64 and 4)",
    )
    add("--anchors", type=int, default=48, help="blocks a sequence")
    add(
        "--lr",
        type=float,
        default=0.0,
        help=(
            "peak learning rate (default 6e-4; 3e-4 from a drafter folder, 1e-4 for streak, 1.5e-3"
            " for markov)"
        ),
    )
    add("--inverse-t", action="store_true", help="weigh randomly masked blocks by 1/t as MDLM does")
    add(
        "--prompts",
        help=(
            "JSONL of held-out prompts (`turns`, `category`) the drafter is evaluated on; default:"
            " held-out rows of the corpus"
        ),
    )
    add(
        "--eval-rows",
        type=int,
        default=24,
        help="held-out rows it is evaluated on where there is no --prompts",
    )
    add(
        "--eval-minutes",
        type=float,
        default=d.eval_minutes,
        help=(
            "minutes from one evaluation to the next (default %(default)g; each takes its time from"
            " the budget)"
        ),
    )
    add(
        "--save-minutes",
        type=float,
        default=d.save_minutes,
        help="minutes from one checkpoint to the next (default %(default)g)",
    )
    add("--seed", type=int, default=0)
    add("--device", default=None)
    add(
        "--compile",
        action="store_true",
        help="compile the drafter's pass (worth it on a GPU from a few minutes of training)",
    )
    add("--quiet", action="store_true", help="no progress bar")


def settings_of(args: argparse.Namespace, on_gpu: bool) -> Settings:
    """The command line as :class:`Settings`."""
    if args.minutes <= 0 and not args.steps:
        raise UserError("--minutes must be above 0.")
    if (
        args.block_size == 1
        or args.block_size < 0
        or min(args.layers, args.batch) < 0
        or min(args.anchors, args.eval_rows) < 1
    ):
        raise UserError(
            "--block-size must be at least 2; --layers, --batch, --anchors and --eval-rows at"
            " least 1."
        )
    if args.streak_from > 1:
        raise UserError("--streak-from is a share of the budget, 0 to 1.")
    kind = args.kind or "block"
    if args.lengths and kind == "ar":
        raise UserError("An autoregressive drafter has no blocks; leave --lengths out.")
    if args.lengths and min(args.lengths) < 2:
        raise UserError("--lengths must be at least 2: an anchor and a mask.")
    if kind == "markov" and args.rank < 0:
        raise UserError("--rank must be at least 1.")
    folder = args.start not in ("random", "target-layers")
    batch = args.batch or ((64 if on_gpu else 4) if kind == "ar" else (64 if on_gpu else 2))
    about = DRAFTER_KINDS[kind]
    lr = args.lr or (about.finetune_rate if folder else about.learning_rate)
    return Settings(
        kind=kind,
        minutes=args.minutes,
        steps=args.steps,
        batch=batch,
        anchors=args.anchors,
        lr=lr,
        mix=LABELS[args.labels],
        inverse_t=args.inverse_t,
        lengths=tuple(args.lengths),
        streak_from=args.streak_from,
        save_minutes=args.save_minutes,
        eval_minutes=args.eval_minutes,
        seed=args.seed,
        compile=args.compile,
    )


def train(
    loaded: Loaded, corpus: Corpus, args: argparse.Namespace, out: Path, prompts: list[dict] | None
) -> dict[str, Any]:
    """Train, evaluate on held-out text and write ``out/drafter``; returns the summary that also
    stands in its card, or what to raise where nothing is left to do.
    """
    writer = corpus.about.get("target", loaded.pair.title)
    if (
        writer != loaded.pair.title
        or int(corpus.tokens.max()) >= loaded.model.get_input_embeddings().weight.shape[0]
    ):
        raise UserError(
            f"This corpus was written by another target ({writer}); write one with `python -m"
            f" specdemo corpus --pair {loaded.pair.id}`."
        )
    rows, held_out = split(corpus)
    if len(rows) == 0:
        raise UserError(
            "The corpus has too few rows to train on; write more with `python -m specdemo corpus"
            " --rows N`."
        )
    settings, state = settings_of(args, loaded.device.type == "cuda"), None
    if args.resume:
        state = checkpoint.read(Path(args.resume))[0]
        check_resumed(args, state)
        if state["settings"]["steps"] and not args.steps and args.minutes != Settings.minutes:
            raise UserError(
                f"The run in {args.resume} counts steps, not minutes; raise --steps to train on."
            )
        budget = (
            {"minutes": args.minutes, "steps": args.steps}
            if args.steps or not state["settings"]["steps"]
            else {}
        )
        kept = {
            **state["settings"],
            **budget,
            "compile": args.compile,
            "eval_minutes": args.eval_minutes,
            "save_minutes": args.save_minutes,
        }
        settings = Settings(
            **{
                **kept,
                "shares": tuple(kept["shares"]) if kept["shares"] else None,
                "lengths": tuple(kept.get("lengths", ())),
            }
        )
        if (
            settings.progress(state["step"], state["seconds"]) >= 1
            and (out / "drafter" / "training.json").is_file()
        ):
            return {"nothing_left": "--steps" if settings.steps else "--minutes"}
    net, began = starting_net(loaded, rows, args, state)
    net.to(loaded.device)
    if settings.lengths and max(settings.lengths) > net.block_size:
        raise UserError(
            f"--lengths must not be above the block size of this drafter, {net.block_size}; lower"
            " them or raise --block-size."
        )
    vocab = None if net.draft_vocab is None else net.draft_vocab.long()
    depth = (
        ((state or {}).get("depth") or (args.block_size or BLOCK) - 1)
        if settings.kind == "ar"
        else net.block_size - 1
    )
    about = {
        "start": began,
        "parameters": sum(p.numel() for p in net.parameters()),
        "corpus": Path(args.corpus).name,
    }
    # of the run's beginning, however often it is resumed
    given = state.get("given") if state else {name: getattr(args, name) for name in GIVEN}
    trainer = Trainer(
        loaded.model,
        net,
        rows,
        settings,
        out,
        vocab,
        extra={"about": about, "depth": depth, "config": net.config.to_dict(), "given": given},
    )
    judge = Judge(loaded.model, net, trainer.head, vocab, depth, trainer.precision)
    passages = (
        written_passages(loaded, prompts, out, settings.seed)
        if prompts
        else corpus_passages(held_out if len(held_out) else rows.take([0]), args.eval_rows)
    )
    judged_on = (
        "held-out prompts"
        if prompts
        else (
            "held-out rows of the corpus"
            if len(held_out)
            else "a row it was trained on, as the corpus is too small to hold any out"
        )
    )
    speed, size = (
        matrix_speed(loaded.device, loaded.dtype),
        (
            len(trainer.head),
            rows.tokens.shape[1],
        ),
    )
    print(estimate(loaded, net, settings, *size, speed))
    trainer.evaluate = lambda: {
        "tokens_per_round": judge.judge(next(iter(passages.values())).some(24), settings.kind)[
            "all"
        ]["tokens_per_round"]
    }
    if args.resume:
        trainer.resume(Path(args.resume))
    summary = trainer.run(show=not args.quiet)
    if summary["stopped"]:
        return summary
    summary["share_of_matrix_speed"] = round(
        summary.pop("steps_per_second") * step_flops(loaded.model, net, settings, *size) / speed, 3
    )
    scores = {
        name: judge.judge(p, settings.kind, () if settings.kind == "ar" else REVEALED)
        for name, p in passages.items()
    }
    facts = {
        **about,
        **summary,
        "scores": scores,
        "target": loaded.pair.title,
        "rows": len(rows),
        "settings": asdict(settings),
        "evaluated_on": judged_on,
        "device": str(loaded.device),
    }
    net.weights = f"{settings.kind} weights"
    folder = save_drafter(net, out / "drafter", write_card(facts))
    (folder / "curve.svg").write_text(draw(trainer.curve), encoding="utf-8")
    (folder / "training.json").write_text(
        json.dumps({"facts": facts, "curve": trainer.curve}), encoding="utf-8"
    )
    return facts


def check_resumed(args: argparse.Namespace, state: dict[str, Any]) -> None:
    """A resumed run keeps its settings, so an option that asks for another one is refused rather
    than dropped.
    """
    usual, had = (
        argparse.ArgumentParser(),
        {
            **state["settings"],
            "layers": state["config"]["num_hidden_layers"],
            "block_size": state["config"].get("block_size"),
        },
    )
    # a checkpoint from before they were kept says nothing about them
    had |= state.get("given") or {name: getattr(args, name) for name in GIVEN}
    had |= {
        "labels": next(k for k, v in LABELS.items() if v == had["mix"]),
        "lengths": list(had.get("lengths", ())),
    }
    add_arguments(usual)
    for name, value in vars(usual.parse_args([])).items():
        if name in KEPT and getattr(args, name) not in (value, had.get(name)):
            raise UserError(
                f"The run in {args.resume} has --{name.replace('_', '-')} {had.get(name)}, which a"
                " resumed run keeps; leave the option out, or begin another run with another"
                " --out."
            )


def starting_net(
    loaded: Loaded, rows: Corpus, args: argparse.Namespace, state: dict | None
) -> tuple[Any, str]:
    """The network before the first step, or one of the checkpoint's shape when resuming."""
    kind = state["settings"]["kind"] if state else args.kind or "block"
    if state is None and kind == "markov" and args.start in ("random", "target-layers"):
        raise UserError(
            "A Markov head is trained on a finished block drafter; give its folder with --start."
        )
    if state is None:
        size, mask = args.draft_vocab, None
        if kind != "ar":
            mask = spare_token(
                loaded.tokenizer,
                loaded.model.get_input_embeddings().weight.shape[0],
                loaded.eos_ids,
                np.bincount(rows.tokens.ravel()),
            )
        keeps = (
            args.start not in ("random", "target-layers")
            and (Path(args.start) / "config.json").exists()
        )
        small = 0 < size < loaded.model.config.get_text_config().vocab_size
        vocab = draft_vocabulary(rows, size, loaded.eos_ids, mask) if small and not keeps else None
        net, began = starting_drafter(
            loaded.model, kind, args.start, args.layers, args.block_size, vocab, args.seed, mask
        )
        if keeps and net.draft_vocab is None and small:
            net.draft_vocab = draft_vocabulary(
                rows, size, loaded.eos_ids, getattr(net.config, "mask_token_id", None)
            ).to(torch.int32)
        return (
            (with_head(net, args.rank), f"{began}, whose layers it keeps")
            if kind == "markov"
            else (net, began)
        )
    cls, form = (ArDrafter, ArDrafterConfig) if kind == "ar" else (BlockDrafter, BlockDrafterConfig)
    config = {
        k: v
        for k, v in state["config"].items()
        if k not in ("model_type", "dtype", "architectures", "transformers_version")
    }
    vocab = checkpoint.read(Path(args.resume))[1].get("net.draft_vocab")
    net = cls(form(**config), vocab).float()
    return with_head(net) if kind == "markov" else net, state["about"]["start"]


def train_main(args: argparse.Namespace) -> int:
    """Entry point of ``python -m specdemo train``."""
    out = Path(args.out or args.resume or f"runs/{args.pair}-{args.kind or 'block'}")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give --out a folder.")
    if (out / checkpoint.NAME).exists() and (
        not args.resume or Path(args.resume).resolve() != out.resolve()
    ):
        raise UserError(
            f"{out} holds a run already; go on with it by --resume {out}, or choose another --out."
        )
    with as_user_errors(out, "--batch or --anchors"), locked_output_dir(out):
        return _train(args, out)


def _train(args: argparse.Namespace, out: Path) -> int:
    if not args.corpus:
        raise UserError(
            "Training needs text: give --corpus a folder, or write one with `python -m specdemo"
            " corpus --out FOLDER`."
        )
    prompts = read_prompts(args.prompts) if args.prompts else None
    corpus = read_corpus(args.corpus)
    loaded = load_target(get_pair(args.pair), device=args.device)
    facts = train(loaded, corpus, args, out, prompts)
    if more := facts.get("nothing_left"):
        print(f"The run in {out} is finished and its drafter written; raise {more} to train on.")
        return 0
    if facts["stopped"]:
        print(
            f"Stopped at step {facts['steps']}; the checkpoint is written, go on with --resume"
            f" {out}"
        )
        return 130
    first = next(iter(facts["scores"].values()))["all"]
    print(
        f"{facts['steps']} steps, {facts['anchors_per_second']} anchors a second"
        f" ({100 * facts['share_of_matrix_speed']:.0f} % of what a plain matrix product reaches"
        f" here); {first['tokens_per_round']} tokens per round on {facts['evaluated_on']}."
    )
    role = DRAFTER_KINDS[facts["settings"]["kind"]].role
    print(
        f"The drafter is in {out / 'drafter'}: race it with --drafter {out / 'drafter'}, name that"
        f" folder in models.yaml under drafters: {role}, or pass it to --start."
    )
    return 0
