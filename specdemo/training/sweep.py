"""Which shape pays best: block drafters of several depths and block lengths, trained on one budget
each and compared by the tokens they would write a second.

    python -m specdemo.training.sweep --corpus DIR --out DIR --layers 2 3 4 6 --slots 8 12 16
        --minutes 3 [other options of `specdemo train`]

A deeper drafter is right more often and takes longer; a longer block can run further and makes the
target's pass wider. Neither tokens per round nor milliseconds decide alone, so each drafter is
evaluated at every chain it can write, on one reading of the same held-out text, with costs measured
here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from ..engine import Engine, load_engine
from ..engine.calibrate import draft_pass_ms
from ..errors import UserError, as_user_errors, run_command
from ..models.drafters import read_drafter
from ..models.pairs import WHERE_NONE
from ..totals import predicted_speedup
from . import checkpoint
from .data import read_corpus, split
from .eval_text import corpus_passages
from .evaluate import Evaluator
from .train import add_arguments, train_main

CHAINS = (3, 5, 7, 11, 15)  # masks in a block; the target's pass has one row more


def train_shape(args: argparse.Namespace, layers: int, slots: int, extra: list[str]) -> Path:
    """The drafter of one shape; one that was finished before is left alone, one that was
    interrupted goes on.
    """
    out = args.out / f"{layers}x{slots}"
    if not (out / "drafter" / "training.json").is_file():
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        words = [
            "--kind",
            "block",
            *(["--pair", args.pair] if args.pair else []),
            "--corpus",
            str(args.corpus),
            "--out",
            str(out),
            "--minutes",
            str(args.minutes),
            "--layers",
            str(layers),
            "--block-size",
            str(slots),
            *extra,
        ]
        if (out / checkpoint.NAME).is_file():
            words += ["--resume", str(out)]
        train_main(parser.parse_args(words))
        if not (out / "drafter" / "training.json").is_file():
            raise KeyboardInterrupt  # it was asked to stop, and said so
    return out / "drafter"


def evaluate_shape(engine: Engine, folder: Path, corpus: Path, rows: int) -> list[dict[str, Any]]:
    """One row for every chain this drafter can write: tokens per round on held-out rows,
    milliseconds, and the speed-up these two predict.
    """
    loaded, costs = engine.loaded, engine.costs
    # as the engine runs it, and as it was trained
    bound: Any = read_drafter(folder, loaded)
    net = read_drafter(folder).float().to(loaded.device)
    chains = [gamma for gamma in CHAINS if gamma < net.block_size]
    draft = draft_pass_ms(engine, bound, [(1, gamma + 1) for gamma in chains], catch_up=2)
    vocab = None if net.draft_vocab is None else net.draft_vocab.long().to(loaded.device)
    head = loaded.model.get_output_embeddings().weight
    precision = torch.bfloat16 if head.dtype == torch.bfloat16 else None
    head = head if vocab is None else head[vocab].contiguous()
    text = corpus_passages(split(read_corpus(corpus))[1], rows)["mixed"]
    out = []
    for gamma in chains:
        evaluator = Evaluator(loaded.model, net, head, vocab, gamma, precision)
        tokens = evaluator.evaluate(text, "block")["all"]["tokens_per_round"]
        draft_ms = draft[f"1x{gamma + 1}"]
        out.append(
            {
                "layers": net.config.num_hidden_layers,
                "slots": net.block_size,
                "chain": gamma,
                "tokens_per_round": tokens,
                "draft_ms": draft_ms,
                "pass_ms": costs.pass_ms(gamma + 1),
                "speedup": predicted_speedup(
                    tokens, costs.baseline_ms, costs.predicted_ms(gamma + 1, draft_ms)
                ),
            }
        )
    return out


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: each drafter at the chain that suits it best, the best drafter first."""
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        key = row["layers"], row["slots"]
        best[key] = max(row, best.get(key, row), key=lambda r: r["speedup"])
    lines = [
        (
            "| layers | slots | best chain | tokens per round | draft ms | target's pass ms |"
            " predicted speed-up |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for r in sorted(best.values(), key=lambda r: -r["speedup"]):
        lines.append(
            f"| {r['layers']} | {r['slots']} | {r['chain']} | {r['tokens_per_round']:.2f} |"
            f" {r['draft_ms']:.1f} | {r['pass_ms']:.1f} | {r['speedup']:.2f} |"
        )
    return "\n".join(lines)


def command() -> argparse.ArgumentParser:
    """The options of the comparison; all others go to ``specdemo train``."""
    parser = argparse.ArgumentParser(
        prog="python -m specdemo.training.sweep", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--pair", help=WHERE_NONE)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="a folder for the runs; a stopped comparison goes on there",
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument(
        "--slots",
        type=int,
        nargs="+",
        default=[8, 12, 16],
        help="slots of a block, anchor included",
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="of every one of them")
    parser.add_argument("--rows", type=int, default=24, help="held-out rows they are evaluated on")
    return parser


def compare(args: argparse.Namespace, extra: list[str]) -> None:
    """Train what is missing, evaluate everything, write ``shapes.json`` and ``shapes.md``."""
    if min(args.layers) < 1 or min(args.slots) <= CHAINS[0] or args.rows < 1:
        raise UserError(
            f"--layers and --rows must be at least 1, --slots at least {CHAINS[0] + 1}."
        )
    folders = [
        train_shape(args, layers, slots, extra) for layers in args.layers for slots in args.slots
    ]
    with as_user_errors(args.out, "--rows"):
        engine = load_engine(args.pair, drafters=())
        rows = [
            row
            for folder in folders
            for row in evaluate_shape(engine, folder, args.corpus, args.rows)
        ]
        (args.out / "shapes.json").write_text(
            json.dumps(
                {
                    "hardware": engine.hardware(),
                    "dtype": str(engine.target.dtype).removeprefix("torch."),
                    "minutes": args.minutes,
                    "options": extra,
                    "rows": rows,
                },
                indent=1,
            )
        )
        (args.out / "shapes.md").write_text(table(rows) + "\n")
    print(table(rows))


def main(words: list[str] | None = None) -> int:
    args, extra = command().parse_known_args(words)
    return run_command(lambda: compare(args, extra), "stopped; the same line goes on.")


if __name__ == "__main__":
    sys.exit(main())
