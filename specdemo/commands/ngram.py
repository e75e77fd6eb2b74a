"""``specdemo ngram``: count the n-grams of a task's text, for DiffuSpec's path search."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files import check_output, read_at_most
from ..models.pairs import WHERE_NONE, get_pair

if TYPE_CHECKING:
    import numpy as np

MAX_TEXT_BYTES = 500_000_000  # of one file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``ngram``."""
    parser.add_argument(
        "texts",
        type=Path,
        nargs="+",
        help="a folder written by `specdemo corpus` (its answers are counted), .jsonl files whose"
        " lines have a “text”, or plain text files",
    )
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--pair", help=f"whose tokenizer is used ({WHERE_NONE})")


def ngram_main(args: argparse.Namespace) -> int:
    """Entry point of ``specdemo ngram``."""
    from ..models.fetch import target_folder
    from ..models.load import check_target_folder
    from ..models.ngram_file import count_ngrams, write_ngrams

    check_output(args.out, "The n-gram file")
    for path in args.texts:
        if not path.exists():
            raise UserError(f"There is no {path}; name a text file, a .jsonl file or a corpus.")
    pair = get_pair(args.pair)
    config, tokenizer = check_target_folder(target_folder(pair), pair)
    vocab_size = int(config.get_text_config().vocab_size)
    texts = (ids for path in args.texts for ids in _texts(path, tokenizer))
    ids, counts = count_ngrams(texts, vocab_size)
    if not len(counts):
        raise UserError("These texts have no three tokens in a row; name others.")
    write_ngrams(args.out, ids, counts, tokenizer)
    print(
        f"{len(counts):,} n-grams, counted {int(counts.sum()):,} times, are in {args.out}; name it"
        f" in models.yaml under ngram: of a pair with this target."
    )
    return 0


def _texts(path: Path, tokenizer: Any) -> Iterator[np.ndarray]:
    """Token ids of each text in ``path``."""
    import numpy as np

    if path.is_dir():
        yield from _answers(path, tokenizer)
        return
    raw = read_at_most(path, MAX_TEXT_BYTES)
    try:
        if raw is None:
            raise ValueError
        text = raw.decode("utf-8")
    except ValueError:
        raise UserError(
            f"{path} is no text in UTF-8 of at most {MAX_TEXT_BYTES // 10**6} MB; convert or split"
            " it."
        ) from None
    documents = _documents(path, text) if path.suffix == ".jsonl" else [text]
    for document in documents:
        encoded = tokenizer(document, add_special_tokens=False)["input_ids"]
        yield np.asarray(encoded, dtype=np.int64)


def _documents(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise UserError(f"Line {number} of {path} is no JSON object with a “text”; correct it.")
        yield found


def _answers(folder: Path, tokenizer: Any) -> Iterator[np.ndarray]:
    """The answers of a corpus, each a text."""
    import numpy as np

    from ..training.data import read_corpus

    corpus = read_corpus(folder)
    if int(corpus.tokens.max()) >= max(tokenizer.get_vocab().values()) + 1:
        raise UserError(f"The corpus in {folder} is another target's; name that one's --pair.")
    for row, answer in zip(corpus.tokens, corpus.answer, strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], answer.astype(np.int8), [0]))))
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            yield row[first:end].astype(np.int64)
