"""The names of the peers; what they are is imported only when they run."""

from __future__ import annotations

from ...errors import UserError

ONE_ROW = (
    "one-row"  # this project's own plain lane with the one-row kernel; always beside the peers
)
PEER_TITLES = {
    "transformers": "transformers, generate",
    "transformers-static": "transformers, static cache",
    "transformers-compile": "transformers, static cache, compiled",
    "transformers-lookup": "transformers, prompt lookup",
    "transformers-early-exit": "transformers, assisted by its first layers",
    "transformers-dflash": "transformers, DFlash with our drafter",
    "llama.cpp-bf16": "llama.cpp, bf16",
    "llama.cpp-bf16-ngram": "llama.cpp, bf16, n-gram drafts",
    "llama.cpp-bf16-draft": "llama.cpp, bf16, drafts by the file's weights",
    "llama.cpp-q8_0": "llama.cpp, Q8_0",
    "llama.cpp-file": "llama.cpp, the file as fetched",
    "llama.cpp-file-ngram": "llama.cpp, the file as fetched, n-gram drafts",
    "onnxruntime-int4": "ONNX Runtime GenAI, int4",
}
# without those that take minutes, or are slower than all others by far
DEFAULT_PEERS = tuple(
    name
    for name in PEER_TITLES
    if name not in ("transformers-static", "transformers-compile", "transformers-early-exit")
)


def parse_peers(text: str | None) -> tuple[str, ...]:
    """The peers that ``--peers A,B`` names, in that order, each once; none without it.

    Raises:
        UserError: there is no such peer.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names:
        if name not in PEER_TITLES:
            raise UserError(
                f"There is no peer “{name:.80}”; choose from: {', '.join(PEER_TITLES)}."
            )
    if not names:
        raise UserError(f"--peers names no peer; choose from: {', '.join(PEER_TITLES)}.")
    return names
