"""The tokenizer of a GGUF file as its model was trained with it.

A GGUF names how text is cut before byte-pair merges (``tokenizer.ggml.pre``); transformers' reader
ignores the name and always cuts as GPT-2 does. For SmolLM2 that reads every run of spaces or
newlines before a digit wrongly, as its tokenizer splits off each digit first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from ..errors import UserError

# The splitting patterns that the published tokenizer.json files of these families hold.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def pre_tokenizer(name: str) -> PreTokenizer:
    """How text is cut before merges, by a GGUF's ``tokenizer.ggml.pre``.

    Raises:
        UserError: a name that is not known here; guessing would change what the target reads.
    """
    if name in ("gpt-2", "gpt2"):
        return ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "smollm":
        return Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        )
    patterns = {"qwen2": _QWEN2, "llama-bpe": _LLAMA3, "llama3": _LLAMA3}
    if name not in patterns:
        known = ", ".join(["smollm", "gpt-2", *patterns])
        raise UserError(
            f"This GGUF cuts text by the rule “{name}”, which is not known here ({known} are); use"
            " a source with the model's own tokenizer.json."
        )
    return Sequence(
        [
            Split(Regex(patterns[name]), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def read_field(gguf: Path, name: str) -> str | None:
    """A text field of a GGUF file, None where it has none."""
    from gguf import GGUFReader

    field = GGUFReader(gguf).get_field(name)
    return None if field is None else str(field.contents())


def load_tokenizer(gguf: Path) -> Any:
    """The tokenizer of a GGUF file, cut as its ``tokenizer.ggml.pre`` says.

    Raises:
        UserError: a byte-level tokenizer with a rule that is not known here.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    if read_field(gguf, "tokenizer.ggml.model") == "gpt2":  # byte-level merges
        name = read_field(gguf, "tokenizer.ggml.pre") or "gpt-2"
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizer(name)
    return tokenizer
