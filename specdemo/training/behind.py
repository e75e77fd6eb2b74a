"""Greedy answers behind much other text, to see how far from its beginning a drafter is still of
use.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..files import atomic_write, read_json
from ..models.load import Loaded
from .data import Corpus
from .eval_text import padded_passages
from .evaluate import Passages
from .progress import progress_bar

NEW_TOKENS = 64  # of an answer


def behind_passages(
    loaded: Loaded, held_out: Corpus, tokens: int, rows: int, folder: Path
) -> Passages:
    """The first ``rows`` held-out prompts, each behind other held-out rows, ``tokens`` tokens in
    all (or the prompt alone, where it is longer), with what the target answers greedily.

    They are kept in ``folder`` and read back, so that all drafters are evaluated on the same text.
    """
    file = folder / f"behind-{tokens}-{rows}.json"
    try:
        answers = read_json(file)
    except (OSError, ValueError):
        answers = _write(loaded, prompts_behind(held_out, tokens, rows))
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(answers))
    return padded_passages(answers, [str(i) for i in range(len(answers))])


def prompts_behind(held_out: Corpus, tokens: int, rows: int) -> list[list[int]]:
    """``rows`` prompts of about ``tokens`` tokens. The text in front begins with a turn: what is
    cut off is cut off up to the next one.
    """
    first = held_out.answer.argmax(1)
    turn = int(held_out.tokens[0, 0])  # every row begins with the token that opens a turn
    prompts = []
    for i in range(min(rows, len(held_out))):
        prompt = held_out.tokens[i, : first[i]].astype(np.int64)
        need, front, j = tokens - len(prompt), np.empty(0, dtype=np.int64), i
        while len(front) < need:
            j += 1
            front = np.concatenate((front, held_out.tokens[j % len(held_out)].astype(np.int64)))
        front = front[len(front) - need :] if need > 0 else front[:0]
        starts = np.flatnonzero(front == turn)
        front = front[starts[0] :] if len(starts) else front[:0]
        prompts.append(np.concatenate((front, prompt)).tolist())
    return prompts


@torch.inference_mode()
def _write(loaded: Loaded, prompts: list[list[int]]) -> list[list[Any]]:
    """A greedy answer to each of ``prompts`` as [tokens, first answer token]."""
    model, out = loaded.model, []
    with progress_bar("answers behind other text", len(prompts)) as update:
        for number, prompt in enumerate(prompts):
            ids = torch.tensor([prompt], device=loaded.device)
            text = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False
            )
            out.append([text[0].tolist(), len(prompt)])
            update(number + 1, "")
    return out
