"""Held-out text to evaluate on: what the target writes for given prompts, or rows of the corpus
that were kept out of training.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ..errors import UserError
from ..files import atomic_write
from ..models.chat import prompt_ids
from .batch_generate import ANSWER, Chat, Writer
from .corpus import uniqueness
from .data import Corpus
from .evaluate import Passages

NEW_TOKENS, AT_ONCE, LONGEST = 96, 24, 1536


def corpus_passages(held_out: Corpus, rows: int = 24, tokens: int = 128) -> dict[str, Passages]:
    """The first ``tokens`` answer tokens of up to ``rows`` held-out rows, at the temperatures of
    the corpus.
    """
    answer = held_out.answer[:rows] & (held_out.answer[:rows].cumsum(1) <= tokens)
    return {
        "mixed": Passages(held_out.tokens[:rows].astype(np.int64), answer, ["corpus"] * len(answer))
    }


def written_passages(
    loaded: Any, prompts: list[dict], out: Path, seed: int, new_tokens: int = NEW_TOKENS
) -> dict[str, Passages]:
    """The target's greedy and sampled (temperature 1) answers to ``prompts`` (``turns``,
    ``category``; the first turn is asked).

    They are kept in ``out/passages-*.json`` and read back on resume, so that one run is always
    judged on the same text.
    """
    name = hashlib.blake2b(
        json.dumps([prompts, seed, new_tokens, loaded.pair.id]).encode(), digest_size=6
    ).hexdigest()
    asked = [prompt_ids(loaded.tokenizer, p["turns"][0], loaded.pair.thinking) for p in prompts]
    fit = [i for i, ids in enumerate(asked) if len(ids) <= LONGEST]
    if not fit:
        raise UserError("All prompts of the evaluation file are too long; use shorter ones.")
    found = {}
    for how, heat in (("greedy", 0.0), ("sampled", 1.0)):
        file = out / f"passages-{name}-{how}.json"
        data = _kept(file)
        if data is None:
            data = _write(
                loaded,
                [asked[i] for i in fit],
                [prompts[i]["category"] for i in fit],
                heat,
                seed,
                new_tokens,
                how,
            )
            out.mkdir(parents=True, exist_ok=True)
            atomic_write(file, json.dumps(data))
        found[how] = Passages(*_padded(data["rows"]), data["category"])
    return found


def _kept(file: Path) -> dict[str, Any] | None:
    """Answers written before; None if there are none or the file is damaged."""
    try:
        data = json.loads(file.read_text())
        return data if len(data["rows"]) == len(data["category"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def loops(passages: Passages, limit: float = 0.35) -> float:
    """The share of answers whose 4-grams mostly repeat, which flatters every drafter."""
    return float(
        np.mean(
            [
                uniqueness(t[a]) < limit
                for t, a in zip(passages.tokens, passages.answer, strict=True)
            ]
        )
    )


def group_by_length(lengths: list[int], most: int, spread: int = 48) -> list[list[int]]:
    """Indices in groups of at most ``most`` whose lengths differ by at most ``spread``: a short row
    is fed token by token while a long one reads.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if groups and len(groups[-1]) < most and lengths[i] - lengths[groups[-1][0]] <= spread:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _write(
    loaded: Any,
    asked: list[list[int]],
    category: list[str],
    heat: float,
    seed: int,
    new_tokens: int,
    how: str,
) -> dict[str, Any]:
    """Prompts of like length are written together; each row comes back as [tokens, first answer
    token].
    """
    chat, rows = Chat([], [-2], [-2], loaded.eos_ids), {}
    for number, some in enumerate(
        tqdm(
            group_by_length([len(ids) for ids in asked], AT_ONCE),
            desc=f"held-out answers, {how}",
            leave=False,
        )
    ):
        length = max(len(asked[i]) for i in some) + new_tokens
        forced = torch.full((len(some), length), -1)
        for row, i in zip(forced, some, strict=True):
            row[: len(asked[i])] = torch.tensor(asked[i])
        noise = torch.Generator(loaded.model.device).manual_seed(seed * 1_000_003 + number)
        writer = Writer(loaded.model, len(some), length)
        tokens, answer = writer.write(
            forced,
            torch.full((len(some),), heat),
            noise,
            chat,
            torch.full((len(some),), ANSWER),
            turns=False,
        )
        for i, t, a in zip(some, tokens, answer, strict=True):
            first = len(asked[i])
            rows[i] = [t[: first + min(int(a.sum()), new_tokens)].tolist(), first]
    return {"rows": [rows[i] for i in range(len(asked))], "category": category}


def _padded(rows: list[list]) -> tuple[np.ndarray, np.ndarray]:
    length = max(len(t) for t, _ in rows)
    tokens, answer = (
        np.zeros((len(rows), length), dtype=np.int64),
        np.zeros((len(rows), length), dtype=bool),
    )
    for i, (ids, first) in enumerate(rows):
        tokens[i, : len(ids)] = ids
        answer[i, first : len(ids)] = True
    return tokens, answer
