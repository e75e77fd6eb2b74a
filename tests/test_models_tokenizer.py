"""The target's tokenizer reads text as the published one does: checked against an independent
implementation of its rules (special tokens, each digit by itself, GPT-2's pattern, merges).
"""

from __future__ import annotations

import json
import random
import unicodedata

import pytest
import regex
from tokenizers import Tokenizer

from specdemo.errors import UserError
from specdemo.models.fetch import target_folder
from specdemo.models.gguf_tokenizer import pre_tokenizer
from specdemo.models.pairs import get_pair

GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
PIECES = (
    "the quick brown fox", "def f(x):\n    return x + 1", "1,000", "24", "3.14159", " ", "  ",
    "\n", "\n\n", "\t", "a", "é", "ü", "日本語", "👩‍👩‍👧", "🏳️‍🌈", "'s", "don't",
    "I'LL", "½", "²", "٣",
    "…", "--", "https://x.y/?a=1&b=2", "\r\n", "\u00a0", "\u2028", "_", "snake_case", "CamelCase",
    "    ", "0", "1. One", "{'k': 1}", "x  \n  y", "\u200d", "ﬁ", "Ⅷ",
)  # fmt: skip


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return {b: chr(b) if b in kept else chr(next(spare)) for b in range(256)}


class Reference:
    """Byte-pair encoding written out, from nothing but vocabulary, merges and special tokens."""

    def __init__(self, data: dict):
        self.vocab = data["model"]["vocab"]
        pairs = [m.split(" ") if isinstance(m, str) else m for m in data["model"]["merges"]]
        self.rank = {tuple(pair): i for i, pair in enumerate(pairs)}
        self.special = {t["content"]: t["id"] for t in data["added_tokens"]}
        self.alphabet = byte_alphabet()

    def words(self, text: str) -> list[str]:
        numeric = lambda c: unicodedata.category(c)[0] == "N"  # noqa: E731
        parts, run = [], ""
        for c in text:
            if numeric(c):
                parts += [run, c] if run else [c]
                run = ""
            else:
                run += c
        return [w for part in [*parts, run] for w in GPT2.findall(part)]

    def merge(self, word: str) -> list[str]:
        parts = [self.alphabet[b] for b in word.encode("utf-8")]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:], strict=False), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            merged, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == best:
                    merged.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            parts = merged
        return parts

    def encode(self, text: str) -> list[int]:
        names = "|".join(map(regex.escape, sorted(self.special, key=len, reverse=True)))
        out: list[int] = []
        for part in regex.split(f"({names})", text):
            if part in self.special:
                out.append(self.special[part])
            else:
                out += [self.vocab[t] for word in self.words(part) for t in self.merge(word)]
        return out


@pytest.fixture(scope="module")
def folder():
    return target_folder(get_pair("smollm2-135m"))


@pytest.mark.real
def test_the_embedded_target_reads_text_as_the_published_tokenizer_does(folder):
    reference = Reference(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = random.Random(0)
    texts = ["a  24", "x\n\n1. One", "def f(x):\n    1 + 2", "1,000   2", "<|im_start|>user\n\n7"]
    texts += ["".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in range(2000)]
    for text in texts:
        assert tokenizer.encode(text, add_special_tokens=False).ids == reference.encode(text), text
    two_spaces = [tokenizer.id_to_token(i) for i in tokenizer.encode("a  24").ids]
    assert two_spaces == ["a", "ĠĠ", "2", "4"]


def test_every_known_rule_cuts_digits_as_its_family_does():
    cut = lambda name, text: [w for w, _ in pre_tokenizer(name).pre_tokenize_str(text)]  # noqa: E731
    assert cut("gpt-2", "a  2024") == ["a", "Ġ", "Ġ2024"]
    assert cut("smollm", "a  2024") == ["a", "ĠĠ", "2", "0", "2", "4"]
    assert cut("qwen2", "a  2024") == ["a", "Ġ", "Ġ", "2", "0", "2", "4"]
    assert cut("llama-bpe", "a  2024") == ["a", "Ġ", "Ġ", "202", "4"]


def test_an_unknown_rule_is_refused_by_name():
    with pytest.raises(UserError, match="tekken"):
        pre_tokenizer("tekken")
