"""The training text on disk and in batches.

A corpus is a folder of shards written by :mod:`.corpus`: ``tokens*.u16.xz`` (little-endian uint16
ids, row by row; ``.u32.xz`` for vocabularies above 65,536), ``assistant_mask*.bits.zlib`` (numpy
packbits along axis 1: which tokens the target wrote as an answer) and optionally ``corpus.json``
(row length, target). Shards pair up by the text between the first word and the extension.
"""

from __future__ import annotations

import hashlib
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..errors import UserError
from ..files import atomic_write, read_json

ROW = 576  # tokens a row where no corpus.json says otherwise


@dataclass
class Corpus:
    """``tokens`` [N, L] unsigned ids, ``answer`` [N, L] bool (written by the target as an answer),
    ``about`` from corpus.json.
    """

    tokens: np.ndarray
    answer: np.ndarray
    about: dict

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray | Sequence[int]) -> Corpus:
        """The corpus of these rows alone."""
        return Corpus(self.tokens[rows], self.answer[rows], self.about)


def write_shard(folder: Path, name: str, tokens: np.ndarray, answer: np.ndarray) -> None:
    """One pair of shard files; the mask is renamed into place last, so that a shard without its
    mask counts as unfinished.
    """
    wide = int(tokens.max(initial=0)) > 65535
    body = lzma.compress(np.ascontiguousarray(tokens, dtype="<u4" if wide else "<u2").tobytes())
    bits = zlib.compress(np.packbits(answer.astype(bool), axis=1).tobytes(), 9)
    for file, data in (
        (f"tokens{name}.{'u32' if wide else 'u16'}.xz", body),
        (f"assistant_mask{name}.bits.zlib", bits),
    ):
        atomic_write(folder / file, data)


def _shard(folder: Path, mask_file: Path, length: int) -> tuple[np.ndarray, np.ndarray]:
    name = mask_file.name[len("assistant_mask") : -len(".bits.zlib")]
    for ending, kind in (("u16", "<u2"), ("u32", "<u4")):
        file = folder / f"tokens{name}.{ending}.xz"
        if file.exists():
            tokens = np.frombuffer(lzma.decompress(file.read_bytes()), dtype=kind).reshape(
                -1, length
            )
            packed = np.frombuffer(zlib.decompress(mask_file.read_bytes()), dtype=np.uint8).reshape(
                len(tokens), -1
            )
            return tokens, np.unpackbits(packed, axis=1)[:, :length].astype(bool)
    raise FileNotFoundError(file)


def read_corpus(folder: str | Path) -> Corpus:
    """All finished shards of a corpus folder as one; anything else is refused with a sentence."""
    folder = Path(folder)
    masks = sorted(folder.glob("assistant_mask*.bits.zlib"))
    if not masks:
        raise UserError(
            f"There is no corpus in {folder}; write one with `python -m specdemo corpus --out"
            f" {folder}`."
        )
    try:
        file = folder / "corpus.json"
        about = dict(read_json(file)) if file.exists() else {}
        shards = [_shard(folder, m, int(about.get("row", ROW))) for m in masks]
    except (OSError, ValueError, TypeError, EOFError, lzma.LZMAError, zlib.error):
        raise UserError(
            f"The corpus in {folder} is damaged or incomplete; write it again with `python -m"
            " specdemo corpus`."
        ) from None
    wide = np.uint32 if any(t.dtype.itemsize > 2 for t, _ in shards) else np.uint16
    return Corpus(
        np.concatenate([t.astype(wide) for t, _ in shards]),
        np.concatenate([m for _, m in shards]),
        about,
    )


def split(corpus: Corpus, held_out: float = 0.01) -> tuple[Corpus, Corpus]:
    """(training rows, held-out rows). A row's side follows from a hash of its first user turn, so
    one prompt never sits on both.
    """
    first = corpus.answer.argmax(1)
    marks = [
        hashlib.blake2b(row[: max(int(n), 1)].tobytes(), digest_size=4).digest()
        for row, n in zip(corpus.tokens, first, strict=True)
    ]
    out = np.array([int.from_bytes(m, "little") / 2**32 < held_out for m in marks], dtype=bool)
    return corpus.take(np.flatnonzero(~out)), corpus.take(np.flatnonzero(out))


def draft_vocabulary(
    corpus: Corpus, size: int, keep: tuple[int, ...] = (), without: int | None = None
) -> torch.Tensor:
    """At most ``size`` token ids, those the target's answers use most (``keep`` always among them,
    ``without`` never), ascending, int64.
    """
    counts = np.bincount(
        corpus.tokens[corpus.answer], minlength=int(corpus.tokens.max()) + 1
    ).astype(np.int64)
    counts[list(keep)] = counts.max() + 1
    if without is not None and without < len(counts):
        counts[without] = -1
        size = min(size, len(counts) - 1)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int64))


class Batches:
    """Rows and anchors of step ``n``, a pure function of (seed, n): resuming at any step continues
    the same stream.

    ``rows_at(n)`` gives ``[N]`` row numbers; ``generator(n)`` the randomness of everything else in
    that step. Each epoch is a shuffle of all rows. With ``reuse`` above 1 its rows come in groups
    of ``group``, and a group is gone through so often, shuffled each time, before the next begins,
    so that what the target said about its rows can be kept meanwhile.
    """

    def __init__(self, rows: int, batch: int, seed: int, reuse: int = 1, group: int = 0):
        self.rows, self.batch, self.seed = rows, min(batch, rows), seed
        self.reuse, self.group = reuse, min(group or rows, rows)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def _epoch_order(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(self.rows)
        if self.reuse == 1:
            return order
        return np.concatenate(
            [
                rng.permutation(order[at : at + self.group])
                for at in range(0, self.rows, self.group)
                for _ in range(self.reuse)
            ]
        )

    def _row(self, index: int) -> int:
        epoch, at = divmod(index, self.rows * self.reuse)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._epoch_order(epoch)
        return int(self._order[at])

    def rows_at(self, step: int) -> np.ndarray:
        return np.array([self._row(step * self.batch + i) for i in range(self.batch)])

    def generator(self, step: int) -> torch.Generator:
        return torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**63)


def choose_anchors(
    answer: torch.Tensor, count: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random anchors of each row, without replacement: ``([N, count] positions, [N, count] bool
    valid)``.

    An anchor is an answer token whose successor is one too (both are supervised at inference); rows
    with fewer are padded, ``valid`` false.
    """
    fit = answer[:, :-1] & answer[:, 1:]
    fit[:, 0] = False  # an anchor needs context before it
    noise = torch.rand(fit.shape, generator=generator).masked_fill(~fit, -1.0)
    value, position = noise.topk(min(count, fit.shape[1]), dim=1)
    return position, value >= 0


def blocks_of(
    tokens: torch.Tensor, answer: torch.Tensor, anchors: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The true tokens of each block and whether they belong to the same answer: two ``[N, A, B]``
    tensors.

    Slot k holds the token at anchor + k; a slot counts while the answer has not ended (end-of-turn
    itself included).
    """
    length = tokens.shape[1]
    where = anchors[..., None] + torch.arange(block_size, device=anchors.device)
    inside = where < length
    where = where.clamp(max=length - 1)
    flat = where.flatten(1)
    truth = tokens.gather(1, flat).view(where.shape)
    ours = answer.gather(1, flat).view(where.shape) & inside
    return truth, ours.cumprod(-1).bool()
