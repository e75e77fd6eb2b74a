"""llama.cpp as a peer, in a process of its own: out of the wheel xllamacpp, or the llama-server
that ``SPECDEMO_LLAMA_SERVER`` names. The wheel is built for any computer of the last ten years; one
built for this processor is faster.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...errors import UserError
from .base import PeerAnswer, PeerFacts, PeerSetup, RunningPeer
from .gguf_files import Converted, converted, file_type, original
from .process import Child

WHEEL = "xllamacpp==2026.10.11549"
SERVER = "SPECDEMO_LLAMA_SERVER"
NGRAM, NGRAM_TOKENS = 3, 7  # an n-gram that is looked up, and how many tokens it drafts
DRAFT_TOKENS = 5
NAMES = {"bf16": "bfloat16"}


class LlamaCpp:
    """Args: weights: ``bf16``, ``q8_0`` or ``file``. drafts: ``ngram``, ``draft`` or nothing."""

    def __init__(self, setup: PeerSetup, weights: str, drafts: str = ""):
        server = os.environ.get(SERVER, "")
        if server and not Path(server).is_file():
            raise UserError(f"{SERVER} names {server}, which is no file; correct or unset it.")
        if not server and importlib.util.find_spec("xllamacpp") is None:
            raise UserError(f"Not installed; “pip install {WHEEL}” brings llama.cpp.")
        pair, say = setup.engine.loaded.pair, setup.progress
        given = original(pair, say)
        drafter = str(given) if drafts == "draft" else ""
        model = given if weights == "file" else converted(pair, _KINDS[weights], say)
        self._child = Child(
            "llamacpp_child.py",
            {
                "server": server,
                "model": str(model),
                "context": setup.context + 64,  # room for drafts behind the last token
                "threads": setup.threads,
                "ngram": NGRAM if drafts == "ngram" else 0,
                "drafter": drafter,
                "draft_tokens": DRAFT_TOKENS if drafter else NGRAM_TOKENS,
            },
            "llama.cpp",
        )
        kind, ready = file_type(model), self._child.ready
        self._facts = PeerFacts(
            engine=ready["engine"],
            weights=_WEIGHTS[weights],
            dtype=NAMES.get(kind.lower(), kind),
            threads=setup.threads,
            drafts=_drafts(drafts, file_type(given)),
            note=_build_note(ready["features"]),
        )

    @property
    def facts(self) -> PeerFacts:
        return self._facts

    def answer(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        return self._child.ask(ids, max_new_tokens)

    def close(self) -> None:
        self._child.close()


def _build_note(features: list[str]) -> str:
    if not features:
        return ""
    return (
        f"The wheel is built for {', '.join(features)}; a llama-server built for this processor"
        f" may be faster ({SERVER} names one)."
    )


def _drafts(drafts: str, file: str) -> str:
    return {
        "": "",
        "ngram": f"ngram-simple, {NGRAM} tokens looked up, {NGRAM_TOKENS} drafted",
        "draft": f"draft-simple, {DRAFT_TOKENS} tokens drafted by the {file} file",
    }[drafts]


_KINDS: dict[str, Converted] = {"bf16": "BF16", "q8_0": "Q8_0"}
_WEIGHTS = {
    "bf16": "the engine's own, in bf16",
    "q8_0": "the engine's own, rounded to 8 bits",
    "file": "the file they were expanded from",
}
OPEN: dict[str, Callable[[PeerSetup], RunningPeer]] = {
    "llama.cpp-bf16": partial(LlamaCpp, weights="bf16"),
    "llama.cpp-bf16-ngram": partial(LlamaCpp, weights="bf16", drafts="ngram"),
    "llama.cpp-bf16-draft": partial(LlamaCpp, weights="bf16", drafts="draft"),
    "llama.cpp-q8_0": partial(LlamaCpp, weights="q8_0"),
    "llama.cpp-file": partial(LlamaCpp, weights="file"),
    "llama.cpp-file-ngram": partial(LlamaCpp, weights="file", drafts="ngram"),
}
