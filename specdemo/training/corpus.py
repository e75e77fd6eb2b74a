"""``python -m specdemo corpus``: the target writes its own training text.

Part of the rows begin with a user turn the target invents by completing the chat template; the
rest, if a prompt file is given, with a prompt from it. Answers are written at temperatures mixed
from 0 to 1, further turns follow until the row is full. Rows that loop (4-gram uniqueness below the
limit) or hardly answer are dropped. Shards are written one by one, and a run that was stopped goes
on after the last whole one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..console import phases
from ..engine.general.target import max_positions
from ..errors import UserError, as_user_errors, shown
from ..files import atomic_write, locked_output_dir, read_json
from ..models.chat import chat_options, prompt_ids
from ..models.load import Loaded, load_target
from ..models.pairs import WHERE_NONE, get_pair
from ..models.shapes import cache_values_of
from ..models.spread import one_device
from ..prompts import load_prompts
from ..repetition import DEGENERATE, uniqueness
from ..request import LAST_SEED
from .batch_generate import ANSWER, USER, Chat, Writer, chat_pieces
from .data import write_shard
from .progress import Update, progress_bar

SHORTEST = 16  # tokens a row: a template, a question and a word of an answer
MAX_TEMPERATURE = 5.0
TOO_SHORT_TO_LOOP = 8  # tokens; too few 4-grams to tell
TEMPERATURES = (0.0, 0.0, 0.3, 0.6, 0.8, 1.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``python -m specdemo corpus``."""
    parser.add_argument(
        "--pair", help=f"the target that writes, an id of models.yaml ({WHERE_NONE})"
    )
    parser.add_argument(
        "--out", required=True, help="folder for the shards; a stopped run goes on there"
    )
    parser.add_argument(
        "--rows", type=int, default=2048, help="rows to write, before loops are dropped"
    )
    parser.add_argument("--length", type=int, default=576, help="tokens a row")
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        help="rows written at once, one shard each (default: 256 on a GPU, 16 on a CPU, not more"
        " than --rows)",
    )
    parser.add_argument(
        "--prompts",
        help="JSONL file with `turns` or `prompt`; half of the rows then begin with one of them",
    )
    parser.add_argument(
        "--unique",
        type=float,
        default=DEGENERATE,
        help="drop answers whose share of distinct 4-grams is lower",
    )
    parser.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        default=list(TEMPERATURES),
        metavar="T",
        help="each row's answers are written at one of these; repeats count (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=one_device, default=None)
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the decoding step (worth it from a few thousand rows)",
    )


def worth_keeping(tokens: np.ndarray, answer: np.ndarray, limit: float) -> bool:
    """Whether a row answers enough (at least 24 tokens or a tenth of the row) and does not loop."""
    written = tokens[answer].tolist()
    if len(written) < min(24, len(tokens) // 10):
        return False
    return len(written) < TOO_SHORT_TO_LOOP or uniqueness(written) >= limit


def opening_rows(
    chat: Chat, prompts: list[list[int]], rows: int, length: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """``forced [rows, length]`` and ``phase [rows]`` of one batch: every second row begins with a
    given prompt (in its chat form, see :func:`..models.chat.prompt_ids`) if there are any.
    """
    forced, phase = torch.full((rows, length), -1), torch.full((rows,), USER)
    for i in range(rows):
        ids = chat.opening
        if prompts and i % 2:
            ids, phase[i] = prompts[int(rng.integers(len(prompts)))], ANSWER
        if len(ids) > length - 8:
            ids, phase[i] = chat.opening, USER
        forced[i, : len(ids)] = torch.tensor(ids)
    return forced, phase


def write_corpus(
    loaded: Loaded,
    out: Path,
    rows: int,
    length: int,
    batch: int,
    prompts: list[str],
    limit: float,
    seed: int,
    compile: bool = False,
    temperatures: Sequence[float] = TEMPERATURES,
) -> dict[str, Any]:
    """Write shards until ``rows`` rows were written in all; returns the counts that also stand in
    ``corpus.json``.
    """
    chat = chat_pieces(loaded.tokenizer, loaded.eos_ids, chat_options(loaded.pair.thinking))
    ids = [prompt_ids(loaded.tokenizer, p, loaded.pair.thinking) for p in prompts]
    out.mkdir(parents=True, exist_ok=True)
    about_file = out / "corpus.json"
    about = _read_about(
        about_file,
        {
            "row": length,
            "target": loaded.pair.title,
            "seed": seed,
            "batch": batch,
            "temperatures": list(temperatures),
        },
    )
    writer = Writer(loaded.model, batch, length, compile)
    with progress_bar("corpus", -(-rows // batch) * batch) as update:
        while about["written"] < rows:
            number, began = about["written"] // batch, time.perf_counter()
            update_token = _token_update(update, about, batch, length)
            # 1) The target writes one batch; its randomness is a function of (seed, batch).
            rng = np.random.default_rng([seed, number])
            forced, phase = opening_rows(chat, ids, batch, length, rng)
            drawn = torch.tensor(rng.choice(temperatures, batch), dtype=torch.float32)
            noise = torch.Generator(writer.device).manual_seed(seed * 1_000_003 + number)
            tokens, answer = (
                x.numpy()
                for x in writer.write(forced, drawn, noise, chat, phase, on_token=update_token)
            )
            # 2) What is worth keeping becomes a shard.
            keep = np.array(
                [worth_keeping(t, a, limit) for t, a in zip(tokens, answer, strict=True)]
            )
            if keep.any():
                write_shard(out, f"-{number:05d}", tokens[keep], answer[keep])
            # 3) The counts, which say where a stopped run goes on.
            about["written"] += batch
            about["kept"] += int(keep.sum())
            about["seconds"] += time.perf_counter() - began
            atomic_write(about_file, json.dumps(about))
            rate = about["written"] * length / about["seconds"]
            update(about["written"], f"{about['kept']} rows kept, {rate:.0f} tokens/s")
    return about


def _token_update(
    update: Update, about: dict[str, Any], batch: int, length: int
) -> Callable[[int], None]:
    """What a :class:`Writer` calls with each position, so that one batch, which may take many
    minutes, shows that it goes on.
    """
    written, kept = about["written"], about["kept"]
    return lambda at: update(
        written + batch * at / length, f"{kept} rows kept, token {at} of {length} of the next"
    )


def _read_about(file: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """``corpus.json`` of a corpus begun with the same settings, or a new one.

    Raises:
        UserError: it is damaged, of other settings, or written by another target.
    """
    about = {**wanted, "written": 0, "kept": 0, "seconds": 0.0}
    if not file.exists():
        return about
    try:
        # a corpus from before temperatures could be chosen says nothing about them
        stored = {"temperatures": list(TEMPERATURES), **read_json(file)}
        about = {**about, **stored}
        whole = all(type(about[name]) is int for name in ("written", "kept"))
        if not whole or not about["seconds"] >= 0:
            raise ValueError
    except (ValueError, TypeError):
        raise UserError(
            f"{file} is damaged, so nothing can be added to that corpus; choose another --out."
        ) from None
    if about["target"] != wanted["target"]:
        raise UserError(
            f"{file.parent} holds a corpus of another target ({shown(about['target'])}); choose"
            " another --out."
        )
    if any(about[name] != wanted[name] for name in ("row", "seed", "batch", "temperatures")):
        raise UserError(
            f"{file.parent} holds a corpus of other settings (length, seed, temperatures, or"
            f" --batch {about['batch']}); choose another --out."
        )
    return about


def corpus_main(args: argparse.Namespace) -> int:
    """Entry point; says what it will take before it starts."""
    if args.rows < 1 or args.batch < 0 or args.length < SHORTEST:
        raise UserError(f"--rows and --batch must be at least 1, --length at least {SHORTEST}.")
    if not 0 <= args.seed <= LAST_SEED:
        raise UserError(f"--seed must be from 0 to {LAST_SEED:,}, not {args.seed}.")
    if not all(0 <= t <= MAX_TEMPERATURE for t in args.temperatures):
        raise UserError(f"--temperatures must be from 0 to {MAX_TEMPERATURE:g}.")
    if not 0 <= args.unique <= 1:  # NaN is never between them
        raise UserError(f"--unique is a share, 0 to 1, not {args.unique}.")
    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise UserError(f"{args.out} is a file; give --out a folder.")
    with as_user_errors(Path(args.out), "--batch or --length"), locked_output_dir(Path(args.out)):
        return _corpus(args)


def _corpus(args: argparse.Namespace) -> int:
    prompts = [p.text for p in load_prompts(args.prompts).prompts] if args.prompts else []
    with phases() as say:
        loaded = load_target(get_pair(args.pair), device=args.device, progress=say)
    on_gpu = str(loaded.device).startswith("cuda")
    batch = args.batch or min(256 if on_gpu else 16, args.rows)
    cfg = loaded.model.config.get_text_config()
    if args.length > (longest := max_positions(cfg)):
        raise UserError(f"This target reads at most {longest} tokens; lower --length.")
    cache = cache_values_of(cfg.to_dict()) * args.length * batch * loaded.model.dtype.itemsize
    print(
        f"{-(-args.rows // batch) * batch} rows of {args.length} tokens, {batch} at once; the cache"
        f" takes {cache / 2**30:.2f} GiB; time per shard shows after the first.",
        flush=True,
    )
    about = write_corpus(
        loaded,
        Path(args.out),
        args.rows,
        args.length,
        batch,
        prompts,
        args.unique,
        args.seed,
        args.compile,
        args.temperatures,
    )
    print(
        f"{about['kept']} of {about['written']} rows kept in {args.out};"
        f" {about['written'] * args.length / max(about['seconds'], 1e-9):.0f} tokens a second."
    )
    return 0
