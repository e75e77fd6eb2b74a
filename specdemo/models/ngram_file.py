"""Counts of the n-grams of a task's text, as one safetensors file: what DiffuSpec's n-gram model is
fitted to in the paper (arXiv 2510.02358, section 4.2).

``ids [n, 3]`` int32 are token ids in a row, ``counts [n]`` int32 how often they stood so; the
metadata has a digest of the tokenizer's vocabulary, as ids of another one mean nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..errors import UserError, first_line
from ..files import atomic_write

ORDER = 3
MOST = 500_000  # n-grams of a file; 8 MB, and a second to read
MAX_BYTES = 64 * MOST


def vocabulary_digest(tokenizer: Any) -> str:
    """A digest of which token has which id."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def count_ngrams(
    texts: Iterable[np.ndarray], vocab_size: int, most: int = MOST
) -> tuple[np.ndarray, np.ndarray]:
    """``(ids [n, 3], counts [n])`` int32 of the n-grams of ``texts`` (each ``[L]`` token ids), the
    ``most`` frequent ones, the commonest first.
    """
    keys = [
        (t[:-2] * vocab_size + t[1:-1]) * vocab_size + t[2:]
        for t in (np.asarray(text, dtype=np.int64) for text in texts)
        if len(t) >= ORDER
    ]
    key, counts = np.unique(np.concatenate([np.empty(0, np.int64), *keys]), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    key, counts = key[order], counts[order]
    pair, last = np.divmod(key, vocab_size)
    ids = np.stack([*np.divmod(pair, vocab_size), last], 1)
    return ids.astype(np.int32), np.minimum(counts, 2**31 - 1).astype(np.int32)


def write_ngrams(path: Path, ids: np.ndarray, counts: np.ndarray, tokenizer: Any) -> None:
    """Write the file.

    Raises:
        OSError: it cannot be written.
    """
    about = {"order": str(ORDER), "vocabulary": vocabulary_digest(tokenizer)}
    atomic_write(path, save({"ids": ids, "counts": counts}, metadata=about))


def read_ngrams(path: str | Path, tokenizer: Any, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """``(ids [n, 3], counts [n])`` of the file.

    Raises:
        UserError: it cannot be read, is no such file, or is of another tokenizer.
    """
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        with safe_open(path, "np") as file:
            about, names = file.metadata() or {}, set(file.keys())
            if names != {"ids", "counts"} or about.get("order") != str(ORDER):
                raise ValueError("it has no n-gram counts")
            ids, counts = file.get_tensor("ids"), file.get_tensor("counts")
        _check(ids, counts, vocab_size)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(
            f"The n-gram file {path} cannot be used ({why}); write it with `python -m specdemo"
            " ngram`."
        ) from None
    if about.get("vocabulary") != vocabulary_digest(tokenizer):
        raise UserError(
            f"The n-gram file {path} was counted with another target's tokenizer; write one for"
            " this pair with `python -m specdemo ngram`."
        )
    return ids, counts


def _check(ids: np.ndarray, counts: np.ndarray, vocab_size: int) -> None:
    """Raises ValueError: no counts of n-grams."""
    if ids.dtype != np.int32 or counts.dtype != np.int32:
        raise ValueError("its numbers are not int32")
    if counts.ndim != 1 or ids.shape != (len(counts), ORDER) or not 0 < len(counts) <= MOST:
        raise ValueError("its tables do not fit each other")
    if counts.min() < 1 or ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError("it has counts below 1 or ids that are no tokens")
