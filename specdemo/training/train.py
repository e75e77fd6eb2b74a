"""``python -m specdemo train``: align a drafter to a target, within a budget of minutes, and leave
a drafter folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..console import phases
from ..errors import UserError, as_user_errors
from ..files import locked_output_dir
from ..models.drafter_files import save_drafter
from ..models.kinds import DRAFTER_KINDS
from ..models.load import Loaded, load_target
from ..models.pairs import get_pair
from ..prompts import Prompt, load_prompts
from . import checkpoint
from .curve import draw
from .data import Corpus, read_corpus, split
from .diffusion_net import DiffusionNet
from .diffusion_start import save_diffusion
from .estimate import estimate, matrix_speed, step_flops
from .eval_text import corpus_passages, written_passages
from .evaluate import Evaluator, Passages
from .initialize import BLOCK, initial_network, resumed_network
from .model_card import write_card
from .options import GIVEN, add_arguments, check_ranges, output_dir, resumed_settings, settings_of
from .recipes import PRESETS, check_corpus
from .settings import Settings
from .trainer import Trainer

REVEALED = (1, 3, 7)  # how many true tokens of a block are shown when the card's scores are taken
PASSAGES_ON_THE_WAY = 24  # held-out texts of an evaluation during training

__all__ = ["add_arguments", "train", "train_main"]


def train(
    loaded: Loaded,
    corpus: Corpus,
    args: argparse.Namespace,
    out: Path,
    prompts: Sequence[Prompt] | None,
) -> dict[str, Any]:
    """Train, evaluate on held-out text and write ``out/drafter``; returns the summary that also
    stands in its card, or what to raise where nothing is left to do.
    """
    rows, held_out = checked_split(loaded, corpus)

    # 1) Settings: the command line's, or those of the run that is resumed.
    settings, state = settings_of(args, loaded.device.type == "cuda"), None
    if args.resume:
        state = checkpoint.read(Path(args.resume))[0]
        settings = resumed_settings(args, state)
        finished = (out / "drafter" / "training.json").is_file()
        if finished and settings.progress(state["step"], state["seconds"]) >= 1:
            return {"nothing_left": "--steps" if settings.steps else "--minutes"}

    # 2) The network, its trainer, and the text it is evaluated on.
    trainer, about, depth = make_trainer(loaded, rows, args, settings, state, out)
    net, loss = trainer.net, trainer.step_loss
    vocab = None if net.draft_vocab is None else net.draft_vocab.long()
    evaluator = Evaluator(loaded.model, net, loss.head, vocab, depth, loss.precision)
    passages, evaluated_on = evaluation_text(loaded, rows, held_out, args, prompts, settings, out)
    some = next(iter(passages.values())).some(PASSAGES_ON_THE_WAY)
    trainer.evaluate = lambda: {
        "tokens_per_round": evaluator.evaluate(some, settings.kind)["all"]["tokens_per_round"]
    }

    trainer.keep_every = args.keep_every
    trainer.write_out = lambda: write_step(trainer, out)

    # 3) Say what it will take, then train.
    speed = matrix_speed(loaded.device, loaded.dtype)
    size = len(loss.head), rows.tokens.shape[1]
    print(estimate(loaded, net, settings, *size, speed, loss.kept_bytes), flush=True)
    if args.resume:
        trainer.resume(Path(args.resume))
    summary = trainer.run(show=not args.quiet)
    if summary["stopped"]:
        return summary

    # 4) Score the finished drafter and write its folder.
    step_rate = summary.pop("steps_per_second")
    flops = step_flops(loaded.model, net, settings, *size)
    facts = {
        **about,
        **summary,
        "share_of_matrix_speed": round(step_rate * flops / speed, 3),
        "target": loaded.pair.title,
        "rows": len(rows),
        "evaluated_on": evaluated_on,
        "device": str(loaded.device),
    }
    return score_and_write(trainer, evaluator, passages, facts, out / "drafter")


def score_and_write(
    trainer: Trainer,
    evaluator: Evaluator,
    passages: dict[str, Passages],
    facts: dict[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """Evaluate the drafter as it is now on ``passages`` and write its folder; returns ``facts``
    with the scores and the settings.
    """
    settings = trainer.settings
    revealed = () if settings.kind == "ar" else REVEALED
    with trainer.finished_weights():
        scores = {n: evaluator.evaluate(p, settings.kind, revealed) for n, p in passages.items()}
        facts = {**facts, "scores": scores, "settings": asdict(settings)}
        write_drafter(trainer.net, folder, facts, trainer.curve)
    return facts


def checked_split(loaded: Loaded, corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Training rows and held-out rows.

    Raises:
        UserError: another target wrote the corpus, or it has too few rows.
    """
    writer = corpus.about.get("target", loaded.pair.title)
    rows = loaded.model.get_input_embeddings().weight.shape[0]
    if writer != loaded.pair.title or int(corpus.tokens.max()) >= rows:
        raise UserError(
            f"This corpus was written by another target ({writer}); write one with `python -m"
            f" specdemo corpus --pair {loaded.pair.id}`."
        )
    training, held_out = split(corpus)
    if len(training) == 0:
        raise UserError(
            "The corpus has too few rows to train on; write more with `python -m specdemo corpus"
            " --rows N`."
        )
    return training, held_out


def make_trainer(
    loaded: Loaded,
    rows: Corpus,
    args: argparse.Namespace,
    settings: Settings,
    state: dict[str, Any] | None,
    out: Path,
) -> tuple[Trainer, dict[str, Any], int]:
    """The trainer, facts about its beginning, and how many tokens the drafter writes in a row.

    Args:
        state: of the checkpoint that is resumed; None at a run's beginning.
    """
    net: Any  # a transformers model, whose attributes a type checker takes for modules
    if state:
        net, start = resumed_network(state, Path(args.resume)), state["about"]["start"]
    else:
        net, start = initial_network(loaded, rows, args)
    net.to(loaded.device)
    net.tokenizer = loaded.tokenizer  # written beside a drafter that stands alone
    if settings.lengths and max(settings.lengths) > net.block_size:
        raise UserError(
            f"--lengths must not be above the block size of this drafter, {net.block_size}; lower"
            " them or raise --block-size."
        )
    if settings.kind == "ar":
        depth = (state or {}).get("depth") or (args.block_size or BLOCK) - 1
    else:
        depth = net.block_size - 1
    about = {
        "start": start,
        "parameters": sum(p.numel() for p in net.parameters()),
        "corpus": Path(args.corpus).name,
    }
    if getattr(net, "reads_text", False):
        about["reads"] = "the text alone, nothing of the target's states"
    # of the run's beginning, however often it is resumed
    given = state.get("given") if state else {name: getattr(args, name) for name in GIVEN}
    extra = {"about": about, "depth": depth, "config": net.config.to_dict(), "given": given}
    vocab = None if net.draft_vocab is None else net.draft_vocab.long()
    trainer = Trainer(loaded.model, net, rows, settings, out, vocab, extra=extra)
    return trainer, about, depth


def evaluation_text(
    loaded: Loaded,
    rows: Corpus,
    held_out: Corpus,
    args: argparse.Namespace,
    prompts: Sequence[Prompt] | None,
    settings: Settings,
    out: Path,
) -> tuple[dict[str, Passages], str]:
    """The text the drafter is evaluated on, by how it was written, and what it is in words."""
    if prompts:
        return written_passages(loaded, prompts, out, settings.seed), "held-out prompts"
    if len(held_out):
        return corpus_passages(held_out, args.eval_rows), "held-out rows of the corpus"
    return (
        corpus_passages(rows.take([0]), args.eval_rows),
        "a row it was trained on, as the corpus is too small to hold any out",
    )


def write_step(trainer: Trainer, out: Path) -> None:
    """The drafter as it is now, in ``out/steps``: for accuracy against steps, see
    :mod:`.score`.
    """
    kind = trainer.settings.kind
    card = f"# Drafter of kind {kind} after {trainer.step} steps\n\nNot evaluated."
    save(trainer.net, out / "steps" / f"{trainer.step:07d}", card)


def save(net: Any, folder: Path, card: str) -> None:
    """Write ``net`` in the layout of its kind."""
    if isinstance(net, DiffusionNet):
        save_diffusion(net, folder, card)
    else:
        save_drafter(net, folder, card)


def write_drafter(
    net: Any, folder: Path, facts: dict[str, Any], curve: list[dict[str, Any]]
) -> None:
    """The drafter folder: config, weights, card, learning curve; ``training.json`` last, which
    marks the run as finished.
    """
    net.weights = f"{facts['settings']['kind']} weights"
    save(net, folder, write_card(facts))
    (folder / "curve.svg").write_text(draw(curve), encoding="utf-8")
    (folder / "training.json").write_text(
        json.dumps({"facts": facts, "curve": curve}), encoding="utf-8"
    )


def train_main(args: argparse.Namespace) -> int:
    """Entry point of ``python -m specdemo train``."""
    if not args.corpus:
        raise UserError(
            "Training needs text: give --corpus a folder, or write one with `python -m specdemo"
            " corpus --out FOLDER`."
        )
    check_ranges(args)
    out = output_dir(args)
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
    prompts = load_prompts(args.prompts).prompts if args.prompts else None
    corpus = read_corpus(args.corpus)
    check_corpus(args.preset, corpus.about)
    if args.preset:
        print(f"Preset {args.preset}: {PRESETS[args.preset].says(args.kind)}.", flush=True)
    with phases() as say:
        loaded = load_target(get_pair(args.pair), device=args.device, progress=say)
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
    role = "diffusion" if "reads" in facts else DRAFTER_KINDS[facts["settings"]["kind"]].role
    print(
        f"The drafter is in {out / 'drafter'}: race it with --drafter {out / 'drafter'}, name that"
        f" folder in models.yaml under drafters: {role}, or pass it to --start."
    )
    return 0
