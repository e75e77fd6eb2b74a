"""Training somewhere else: pack what a run needs into one small folder, and train every kind there
with one command.

    python -m specdemo.training.bundle pack --corpus DIR --out BUNDLE [--rows N]
        [--drafter KIND=FOLDER ...] [--passages DIR --prompts FILE]
    python -m specdemo.training.bundle train --bundle BUNDLE --minutes 9 --out DIR

The target is not in the bundle: it is found as always (``SPECDEMO_TARGET_DIR``, the cache, or the
network).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Collection
from pathlib import Path

from ..errors import UserError, as_user_errors
from ..models.kinds import DRAFTER_KINDS, DrafterKind
from . import checkpoint
from .data import read_corpus, write_shard
from .options import add_arguments, check_ranges
from .train import train_main

LIMIT = 64 * 2**20
KINDS = tuple(name for name, kind in DRAFTER_KINDS.items() if kind.bundle_share)


def pack(
    corpus: Path,
    out: Path,
    rows: int = 0,
    drafters: dict[str, Path] | None = None,
    prompts: Path | None = None,
    passages: Path | None = None,
) -> int:
    """Write the bundle and return its size in bytes.

    Args:
        rows: how many corpus rows, evenly spread (0 = all). drafters: kind to a drafter folder to
            start from.
        prompts: held-out prompts; passages: a folder with the target's answers to them
            (``passages-*.json``), so that they are not written again.
    Raises:
        UserError: a folder is missing, or the bundle is over 64 MiB (the sentence says how many
            rows would fit).
    """
    if out.exists() and not all(
        f.name in ("corpus", "drafters", "prompts.jsonl") or f.match("passages-*.json")
        for f in out.iterdir()
    ):
        raise UserError(f"{out} holds something else than a bundle; choose an empty folder.")
    text = read_corpus(corpus)
    step = max(len(text) // rows, 1) if rows else 1
    keep = text.take(range(0, len(text), step))
    shutil.rmtree(out, ignore_errors=True)
    (out / "corpus").mkdir(parents=True)
    write_shard(out / "corpus", "", keep.tokens, keep.answer)
    (out / "corpus" / "corpus.json").write_text(
        json.dumps({**text.about, "row": keep.tokens.shape[1]})
    )
    for kind, folder in (drafters or {}).items():
        if kind not in KINDS or not (folder / "config.json").is_file():
            raise UserError(
                f"--drafter {kind}={folder} is not a kind ({', '.join(KINDS)}) and a"
                " drafter folder."
            )
        shutil.copytree(folder, out / "drafters" / kind)
    if prompts:
        shutil.copy(prompts, out / "prompts.jsonl")
        for file in sorted(passages.glob("passages-*.json")) if passages else ():
            shutil.copy(file, out / file.name)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    if size > LIMIT:
        text_bytes = sum(f.stat().st_size for f in (out / "corpus").iterdir())
        fits = int(len(keep) * max(LIMIT - (size - text_bytes), 0) / text_bytes)
        raise UserError(
            f"The bundle has {size / 2**20:.0f} MiB, more than 64; pack at most --rows {fits}, or"
            " fewer drafters."
        )
    return size


def train_all(
    bundle: Path,
    out: Path,
    minutes: float,
    extra: list[str],
    kinds: Collection[str] = KINDS,
) -> None:
    """Train the planned kinds one after another; a kind whose folder holds a checkpoint goes on, a
    finished one is left alone.

    Args:
        minutes: of all kinds together, evaluations during training included (loading and the last
            evaluation of each come on top).
        extra: more options for ``python -m specdemo train``, given to every kind.
    """
    plan = [kind for name, kind in DRAFTER_KINDS.items() if name in kinds]
    total = sum(kind.bundle_share for kind in plan)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for kind in plan:  # before any of them takes its minutes
        check_ranges(parser.parse_args(["--kind", kind.name, *extra]))
    for kind in plan:
        mine, start = out / kind.name, _start(bundle, out, kind)
        if (mine / "drafter" / "training.json").exists():
            continue
        mine.mkdir(parents=True, exist_ok=True)
        words = [
            "--kind",
            kind.name,
            "--corpus",
            str(bundle / "corpus"),
            "--out",
            str(mine),
            "--minutes",
            f"{minutes * kind.bundle_share / total:.3f}",
        ]
        if (bundle / "prompts.jsonl").exists():
            words += ["--prompts", str(bundle / "prompts.jsonl")]
            for file in bundle.glob("passages-*.json"):
                shutil.copy(file, mine / file.name)
        words += (
            ["--resume", str(mine)] if (mine / checkpoint.NAME).exists() else ["--start", start]
        )
        began = time.perf_counter()
        train_main(parser.parse_args(words + extra))
        print(f"{kind.name}: {time.perf_counter() - began:.0f} seconds in all", flush=True)
        if not (mine / "drafter" / "training.json").exists():
            return  # stopped on the way; the same command goes on


def _start(bundle: Path, out: Path, kind: DrafterKind) -> str:
    """The first there is of: what was trained here before it, the bundle's own drafters, the
    target's layers.
    """
    trained = [out / name / "drafter" for name in kind.starts_from]
    packed = [bundle / "drafters" / name for name in (kind.name, *kind.starts_from)]
    for folder in trained + packed:
        if (folder / "config.json").is_file():
            return str(folder)
    return "target-layers"


def command() -> argparse.ArgumentParser:
    """The options of both halves; all others go to ``specdemo train``."""
    parser = argparse.ArgumentParser(
        prog="python -m specdemo.training.bundle", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pack_parser = commands.add_parser("pack", help="write the bundle")
    pack_parser.add_argument("--corpus", type=Path, required=True)
    pack_parser.add_argument("--out", type=Path, required=True)
    pack_parser.add_argument(
        "--rows", type=int, default=0, help="corpus rows, evenly spread (default: all)"
    )
    pack_parser.add_argument(
        "--drafter",
        action="append",
        default=[],
        metavar="KIND=FOLDER",
        help="a drafter to start from; may be repeated",
    )
    pack_parser.add_argument("--prompts", type=Path, help="held-out prompts to evaluate on")
    pack_parser.add_argument(
        "--passages",
        type=Path,
        help="folder with the target's answers to them, from an earlier run",
    )
    train_parser = commands.add_parser(
        "train", help="train everything from a bundle; other options go to `specdemo train`"
    )
    train_parser.add_argument("--bundle", type=Path, required=True)
    train_parser.add_argument("--out", type=Path, required=True)
    train_parser.add_argument("--minutes", type=float, default=9.0)
    kinds = list(KINDS)
    train_parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    return parser


def main(words: list[str] | None = None) -> int:
    args, extra = command().parse_known_args(words)
    try:
        if args.command == "train":
            train_all(args.bundle, args.out, args.minutes, extra, tuple(args.kinds))
            return 0
        if extra:
            command().error(f"unknown options: {' '.join(extra)}")
        pairs = dict(d.partition("=")[::2] for d in args.drafter)
        with as_user_errors(args.out, "--rows"):
            size = pack(
                args.corpus,
                args.out,
                args.rows,
                {k: Path(v) for k, v in pairs.items()},
                args.prompts,
                args.passages,
            )
        print(f"{args.out}: {size / 2**20:.1f} MiB")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
