"""How good drafters and unfinished runs are on held-out text, and how to get a drafter out of a run
that goes on.

    python -m specdemo.training.score FOLDER... --corpus DIR [--rows 107] [--chain 7]
        [--behind 400 1600 3000 --texts DIR] [--export DIR]

A folder is a drafter or a run; of a run the last checkpoint counts, in its averaged weights where
it keeps some. All are evaluated on the same rows; intervals are 95 % bootstraps over rows, ratios
are paired with the first folder.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..console import phases
from ..errors import UserError, as_user_errors, run_command
from ..files import locked_output_dir
from ..models.ar_drafter import ArDrafter
from ..models.drafters import drafter_config, read_drafter
from ..models.kinds import is_diffusion_lm
from ..models.load import Loaded, load_target
from ..models.pairs import WHERE_NONE, get_pair
from ..models.spread import one_device
from . import checkpoint
from .behind import behind_passages
from .data import Corpus, read_corpus
from .diffusion_net import DiffusionNet
from .diffusion_start import finished_diffusion
from .eval_text import corpus_passages
from .evaluate import Evaluator, Passages
from .initialize import resumed_network
from .settings import Settings
from .train import REVEALED, checked_split, write_drafter

BOOTSTRAPS = 2000


@dataclass
class Candidate:
    """A drafter to be scored: its float32 network, and the state of its run, None for a finished
    drafter.
    """

    name: str
    net: Any
    state: dict[str, Any] | None


def read_candidate(folder: Path, loaded: Loaded) -> Candidate:
    """The drafter in ``folder``, or the one that the run in ``folder`` has come to.

    Raises:
        UserError: it is neither.
    """
    if (folder / "config.json").is_file():
        drafter: Any = (
            finished_diffusion(folder, loaded)
            if is_diffusion_lm(drafter_config(folder))
            else read_drafter(folder).float()
        )
        return Candidate(str(folder), drafter.to(loaded.device), None)
    if not (folder / checkpoint.NAME).is_file():
        raise UserError(f"{folder} holds neither a drafter nor a run; name one of those folders.")
    state, tensors = checkpoint.read(folder)
    net: Any = resumed_network(state, folder)
    net.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    for name, weight in net.named_parameters():
        weight.data = tensors.get(f"average.{name}", weight.data)
    net.tokenizer = loaded.tokenizer
    return Candidate(str(folder), net.to(loaded.device).eval(), state)


def rounds_by_row(
    loaded: Loaded, net: Any, passages: Passages, chain: int, revealed: tuple[int, ...] = ()
) -> tuple[np.ndarray, dict[str, Any]]:
    """``[rows, 2]`` rounds and tokens of every row, and the scores over all of them.

    Args:
        chain: drafts a round. revealed: see :meth:`.Evaluator.evaluate`.
    """
    vocab = None if net.draft_vocab is None else net.draft_vocab.long().to(loaded.device)
    head = loaded.model.get_output_embeddings().weight
    precision = torch.bfloat16 if head.dtype == torch.bfloat16 else None
    if isinstance(net, DiffusionNet):
        head = net.head
    head = head if vocab is None else head[vocab].contiguous()
    rows = [str(i) for i in range(len(passages.category))]
    kind = "ar" if isinstance(net, ArDrafter) else "block"
    evaluator = Evaluator(loaded.model, net, head, vocab, chain, precision)
    named = Passages(passages.tokens, passages.answer, rows)
    scores = evaluator.evaluate(named, kind, () if kind == "ar" else revealed)
    by_row = [scores["by_category"][row] for row in rows]
    counts = [[r["rounds"], round(r["rounds"] * r["tokens_per_round"])] for r in by_row]
    return np.array(counts, dtype=np.int64), scores


def tokens_per_round(counts: np.ndarray) -> float:
    """Tokens per round of ``[rows, 2]`` rounds and tokens."""
    return float(counts[:, 1].sum() / max(counts[:, 0].sum(), 1))


def interval(counts: np.ndarray, base: np.ndarray | None = None) -> tuple[float, float]:
    """95 % bootstrap interval over rows of :func:`tokens_per_round`, or of its ratio to ``base`` on
    the same rows.
    """
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(counts), (BOOTSTRAPS, len(counts)))
    values = [
        tokens_per_round(counts[p]) / (1.0 if base is None else tokens_per_round(base[p]))
        for p in picks
    ]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def line(name: str, counts: np.ndarray, base: np.ndarray | None) -> str:
    """One Markdown row of the table."""
    low, high = interval(counts)
    text = f"| {name} | {tokens_per_round(counts):.3f} [{low:.3f}, {high:.3f}] |"
    if base is None:
        return text + " |"
    low, high = interval(counts, base)
    ratio = tokens_per_round(counts) / tokens_per_round(base)
    return f"{text} {ratio:.3f} [{low:.3f}, {high:.3f}] |"


def export(loaded: Loaded, candidate: Candidate, rows: int, folder: Path, scores: dict) -> None:
    """Write a run's drafter as it is now: int8, with card and curve.

    Args:
        rows: training rows of the corpus. scores: by name of the text, as its card has them.
    Raises:
        UserError: it is a finished drafter.
    """
    state = candidate.state
    if state is None:
        raise UserError(f"{candidate.name} is a finished drafter; copy the folder.")
    facts = {
        **state["about"],
        "steps": state["step"],
        "seconds": state["seconds"],
        "anchors": state["anchors"],
        "target": loaded.pair.title,
        "rows": rows,
        "settings": asdict(Settings.from_checkpoint(state["settings"])),
        "evaluated_on": "held-out rows of the corpus",
        "device": str(loaded.device),
        "scores": scores,
    }
    with locked_output_dir(folder.parent):
        write_drafter(candidate.net, folder, facts, state["curve"])


def texts(
    loaded: Loaded, held_out: Corpus, args: argparse.Namespace
) -> dict[str, tuple[str, Passages]]:
    """By short name: in words what the text is, and the text."""
    out = {}
    if args.rows:
        count = min(args.rows, len(held_out))
        spread = held_out.take(np.linspace(0, len(held_out) - 1, count).round().astype(int))
        mixed = corpus_passages(spread, count, args.tokens)["mixed"]
        out["mixed"] = f"{len(mixed.category)} held-out rows", mixed
    for tokens in args.behind:
        passages = behind_passages(loaded, held_out, tokens, args.behind_rows, args.texts)
        name = f"behind {tokens:,} tokens"
        out[name] = f"{len(passages.category)} greedy answers {name}", passages
    return out


def command() -> argparse.ArgumentParser:
    """The options of ``python -m specdemo.training.score``."""
    parser = argparse.ArgumentParser(
        prog="python -m specdemo.training.score", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folders", type=Path, nargs="+", help="drafters and runs")
    parser.add_argument("--pair", help=WHERE_NONE)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument(
        "--rows", type=int, default=107, help="held-out rows, evenly spread (0: none)"
    )
    parser.add_argument("--tokens", type=int, default=128, help="answer tokens of each row")
    parser.add_argument("--chain", type=int, default=7, help="drafts a round")
    parser.add_argument(
        "--behind", type=int, nargs="+", default=[], help="also answers behind so many tokens"
    )
    parser.add_argument("--behind-rows", type=int, default=24, help="how many answers each")
    parser.add_argument(
        "--texts", type=Path, default=Path("runs/texts"), help="folder that keeps those answers"
    )
    parser.add_argument(
        "--export", type=Path, help="write the drafter of the last folder, a run, to this folder"
    )
    parser.add_argument(
        "--no-markov", action="store_true", help="leave out Markov heads, which a run has not yet"
    )
    parser.add_argument("--device", type=one_device, default=None)
    return parser


def score(args: argparse.Namespace) -> None:
    """Evaluate all folders, print the tables, export the last one where asked for."""
    if args.chain < 1 or min([1, *args.behind]) < 1 or min(args.rows, args.behind_rows - 1) < 0:
        raise UserError("--chain, --behind and --behind-rows must be at least 1, --rows 0.")
    if not args.rows and not args.behind:
        raise UserError("There is nothing to evaluate on; give --rows or --behind.")
    with phases() as say:
        loaded = load_target(get_pair(args.pair), device=args.device, progress=say)
    training, held_out = checked_split(loaded, read_corpus(args.corpus))
    if not len(held_out):
        raise UserError(
            f"Of the corpus's {len(training)} rows none is held out, as about one in a hundred is;"
            " write some hundreds more with `python -m specdemo corpus --rows N`."
        )
    candidates = [read_candidate(folder, loaded) for folder in args.folders]
    for candidate in candidates if args.no_markov else ():
        candidate.net.markov = None
    scores: dict[str, Any] = {}
    for name, (words, passages) in texts(loaded, held_out, args).items():
        print(f"\n| {words}, chains of {args.chain} | tokens per round | by the first |")
        print("|---|---|---|")
        base = None
        for candidate in candidates:
            written = args.export and candidate is candidates[-1]
            revealed = tuple(l for l in REVEALED if l < args.chain) if written else ()
            counts, scores[name] = rounds_by_row(
                loaded, candidate.net, passages, args.chain, revealed
            )
            print(line(candidate.name, counts, base), flush=True)
            base = counts if base is None else base
    if args.export:
        kept = {n: {**s, "by_category": {}} for n, s in scores.items()}
        export(loaded, candidates[-1], len(training), args.export, kept)
        print(f"\nThe drafter is in {args.export}.")


def main(words: list[str] | None = None) -> int:
    args = command().parse_args(words)

    def work() -> None:
        with as_user_errors(args.export or args.texts, "--rows"):
            score(args)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
