"""Held-out text to evaluate on: what the target writes for given prompts, or rows of the corpus
that were kept out of training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..files import atomic_write, read_json
from ..models.chat import prompt_ids
from ..prompts import Prompt
from .batch_generate import ANSWER, Chat, Writer
from .data import Corpus
from .evaluate import Passages
from .progress import progress_bar

NEW_TOKENS = 96  # tokens an answer may have
AT_ONCE = 24  # prompts written together
LONGEST = 1536  # tokens a prompt may have


def corpus_passages(held_out: Corpus, rows: int = 24, tokens: int = 128) -> dict[str, Passages]:
    """The first ``tokens`` answer tokens of up to ``rows`` held-out rows, at the temperatures of
    the corpus.
    """
    answer = held_out.answer[:rows] & (held_out.answer[:rows].cumsum(1) <= tokens)
    return {
        "mixed": Passages(held_out.tokens[:rows].astype(np.int64), answer, ["corpus"] * len(answer))
    }


def written_passages(
    loaded: Any,
    prompts: Sequence[Prompt],
    out: Path,
    seed: int,
    new_tokens: int = NEW_TOKENS,
) -> dict[str, Passages]:
    """The target's greedy and sampled (temperature 1) answers to ``prompts``.

    They are kept in ``out/passages-*.json`` and read back on resume, so that one run is always
    evaluated on the same text.

    Raises:
        UserError: all prompts are too long.
    """
    # the form in which earlier versions named the file
    asked = [{"turns": [p.text], "category": p.category} for p in prompts]
    name = hashlib.blake2b(
        json.dumps([asked, seed, new_tokens, loaded.pair.id]).encode(), digest_size=6
    ).hexdigest()
    ids = [prompt_ids(loaded.tokenizer, p.text, loaded.pair.thinking) for p in prompts]
    fit = [i for i in range(len(ids)) if len(ids[i]) <= LONGEST]
    if not fit:
        raise UserError("All prompts of the evaluation file are too long; use shorter ones.")
    ids, category = [ids[i] for i in fit], [prompts[i].category for i in fit]
    found = {}
    for how, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        file = out / f"passages-{name}-{how}.json"
        data = _read_answers(file)
        if data is None:
            rows = _write_answers(loaded, ids, temperature, seed, new_tokens, how)
            data = {"rows": rows, "category": category}
            out.mkdir(parents=True, exist_ok=True)
            atomic_write(file, json.dumps(data))
        found[how] = padded_passages(data["rows"], data["category"])
    return found


def _read_answers(file: Path) -> dict[str, Any] | None:
    """Answers written before; None if there are none or the file is damaged."""
    try:
        data = read_json(file)
        return data if len(data["rows"]) == len(data["category"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


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


def _write_answers(
    loaded: Any,
    prompts: list[list[int]],
    temperature: float,
    seed: int,
    new_tokens: int,
    how: str,
) -> list[list]:
    """An answer to each of ``prompts`` (token ids) as [tokens, first answer token]; prompts of like
    length are written together.
    """
    chat, rows = Chat([], [-2], [-2], loaded.eos_ids), {}
    groups = group_by_length([len(ids) for ids in prompts], AT_ONCE)
    with progress_bar(f"held-out answers, {how}", len(groups)) as update:
        for number, group in enumerate(groups):
            length = max(len(prompts[i]) for i in group) + new_tokens
            forced = torch.full((len(group), length), -1)
            for row, i in zip(forced, group, strict=True):
                row[: len(prompts[i])] = torch.tensor(prompts[i])
            noise = torch.Generator(loaded.model.device).manual_seed(seed * 1_000_003 + number)
            tokens, answer = Writer(loaded.model, len(group), length).write(
                forced,
                torch.full((len(group),), temperature),
                noise,
                chat,
                torch.full((len(group),), ANSWER),
                turns=False,
            )
            for i, t, a in zip(group, tokens, answer, strict=True):
                first = len(prompts[i])
                rows[i] = [t[: first + min(int(a.sum()), new_tokens)].tolist(), first]
            update(number + 1, "")
    return [rows[i] for i in range(len(prompts))]


def padded_passages(rows: list[list], category: list[str]) -> Passages:
    """Passages of rows of other lengths, each [tokens, first answer token]."""
    length = max(len(t) for t, _ in rows)
    tokens = np.zeros((len(rows), length), dtype=np.int64)
    answer = np.zeros((len(rows), length), dtype=bool)
    for i, (ids, first) in enumerate(rows):
        tokens[i, : len(ids)] = ids
        answer[i, first : len(ids)] = True
    return Passages(tokens, answer, category)
