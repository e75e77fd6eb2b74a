"""GGUF files that are none: one sentence, and no memory for what they only claim to hold."""

import struct

import pytest

from specdemo.errors import UserError
from specdemo.models.gguf_weights import load_gguf


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def field(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: bytes, value: int) -> bytes:
    return field(b"llama." + name, 4, struct.pack("<I", value))


def gguf(*fields: bytes, tensors: bytes = b"", counts: tuple[int, int] | None = None) -> bytes:
    """A file of those fields; ``counts`` are what it says of its tensors and fields, if not the
    truth.
    """
    every = (field(b"general.architecture", 8, text(b"llama")), *fields)
    said = counts or (bool(tensors), len(every))
    return b"GGUF" + struct.pack("<IQQ", 3, *said) + b"".join(every) + tensors


def tensor(rows: int, columns: int, offset: int = 0) -> bytes:
    return text(b"token_embd.weight") + struct.pack("<IQQIQ", 2, columns, rows, 0, offset)


def model(layers: int = 1) -> tuple[bytes, ...]:
    sizes = {b"block_count": layers, b"embedding_length": 8, b"feed_forward_length": 8}
    sizes |= {b"attention.head_count": 2, b"vocab_size": 16}
    return tuple(number(name, value) for name, value in sizes.items())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"GGML" + bytes(100), "magic"),
        (b"GGUF" + bytes(100), "v0"),
        (gguf(counts=(0, 2**63)), "cannot be read"),
        (gguf(counts=(2**63, 1)), "cannot be read"),
        (gguf(*model(), text(b"a") + struct.pack("<IQ", 8, 2**63)), "cannot|holds 0"),
        (gguf(text(b"a") + struct.pack("<IIQ", 9, 0, 2**40)), "cannot be read"),
        (gguf(*model(), struct.pack("<Q", 2**63)), "cannot be read"),
        (gguf(*model(), tensors=tensor(1024, 1024)), "cannot be read"),
        (gguf(*model(), tensors=tensor(2**31, 2**31)), "cannot be read"),
        (gguf(*model(), tensors=tensor(2, 2, 2**63)), "cannot be read"),
        (gguf(*model(10**9)), "says that it has 1000000000 layers"),
        (gguf(*model()), "holds 0 weights"),
    ],
)
def test_a_file_that_is_no_model_is_one_sentence(tmp_path, content, why):
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(UserError, match=f"^the GGUF file m.gguf .*({why})"):
        load_gguf(file)
