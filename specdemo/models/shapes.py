"""What decides how much memory a network takes: read from its files where they are here, else from
the ``shapes`` of models.yaml, by hub id. Loads no torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import UserError, shown
from ..files import read_json
from ..paths import given_path

# the names that families of transformers have for the same field
NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "n_blocks", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "hidden_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
    "vocabulary": ("vocab_size", "embedding_size"),
}
# parts of the names of the tensors that turn ids into rows, and rows into logits
EMBEDDINGS = ("embed_tokens", "wte.", "word_embeddings", "vocab_embed", "embed_in", "ff_out.weight")
HEADS = ("lm_head", "embed_out", "output_layer.linear", "transformer.ff_out")
LARGEST_HEADER = 100_000_000  # bytes, as the library's own limit


def cache_values(layers: int, kv_heads: int, head_dim: int) -> int:
    """Numbers that the keys and values of one token are."""
    return 2 * layers * kv_heads * head_dim


def cache_values_of(config: Mapping[str, Any]) -> int:
    """:func:`cache_values` of a target with this config, by whatever names its family has; 0 where
    it does not say.
    """
    sizes = {key: _field(config, names) for key, names in NAMES.items()}
    layers, hidden, heads = sizes["layers"], sizes["hidden"], sizes["heads"]
    if not (layers and hidden and heads):
        return 0
    return cache_values(layers, sizes["kv_heads"] or heads, sizes["head_dim"] or hidden // heads)


class Shape(BaseModel):
    """Sizes of a network.

    Attributes:
        parameters: all of its weights.
        embeddings: how many matrices ``[vocabulary, hidden]`` are among them: 0 where a drafter
            borrows the target's, 1 where input and output share one, 2 else.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    parameters: int = Field(ge=1)
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    embeddings: int = Field(ge=0, le=2)

    @property
    def embedded(self) -> int:
        """Weights of the embedding and of a head of its own."""
        return self.embeddings * self.vocabulary * self.hidden

    @property
    def body(self) -> int:
        """Weights of everything between embedding and head."""
        return self.parameters - self.embedded

    def cache_bytes(self, slots: int, itemsize: int) -> int:
        """Keys and values of one sequence."""
        return cache_values(self.layers, self.kv_heads, self.head_dim) * slots * itemsize


def shape_of(folder: Path) -> Shape | None:
    """The shape of the network in ``folder``: sizes from its config.json, weights counted in the
    headers of its safetensors files. None where they do not say.
    """
    try:
        config = read_json(folder / "config.json")
        return _shape_of(config.get("text_config") or config, dict(_tensors(folder)))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, struct.error):
        return None  # damaged, or of a form that nobody knows


def _shape_of(config: Any, tensors: Mapping[str, int]) -> Shape | None:
    sizes = {key: _field(config, names) for key, names in NAMES.items()}
    layers, hidden, heads = sizes["layers"], sizes["hidden"], sizes["heads"]
    vocabulary = sizes["vocabulary"]
    if not (tensors and layers and hidden and heads and vocabulary):
        return None
    own = any(part in name for name in tensors for part in EMBEDDINGS)
    head = any(part in name for name in tensors for part in HEADS)
    tied = bool(config.get("tie_word_embeddings", not head))
    return Shape(
        parameters=sum(tensors.values()),
        layers=layers,
        hidden=hidden,
        kv_heads=sizes["kv_heads"] or heads,
        head_dim=sizes["head_dim"] or hidden // heads,
        vocabulary=vocabulary,
        embeddings=int(own) + int(head and not (own and tied)),
    )


def _field(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = next((config[n] for n in names if isinstance(config.get(n), int)), None)
    return found if found and found > 0 else None


def _tensors(folder: Path) -> Iterator[tuple[str, int]]:
    """Names and sizes of the weights in all safetensors files."""
    for file in sorted(folder.glob("*.safetensors")):
        if not file.is_file():
            raise ValueError("a pipe, which would be waited for")
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > LARGEST_HEADER:
                raise ValueError("too long a header")
            header = json.loads(stream.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for size in tensor["shape"]:
                    count *= size
                yield name, count


@lru_cache(maxsize=4)
def _listed(path: Path, changed: int) -> dict[str, Shape]:
    from .pairs import read_models

    found = read_models(path).get("shapes") or {}
    if not isinstance(found, dict):
        raise UserError(f"{path}: “shapes” is a mapping from hub id to sizes.")
    return {str(name): _shape(name, entry, path) for name, entry in found.items()}


def listed_shapes(path: str | Path | None = None) -> dict[str, Shape]:
    """The ``shapes`` of models.yaml (default: as in :func:`.pairs.load_pairs`), by hub id.

    Raises:
        UserError: one is not as it must be.
    """
    from .pairs import models_file

    file = given_path(path or models_file(), "The list of models")
    return _listed(file, file.stat().st_mtime_ns)


def _shape(name: Any, entry: Any, path: Path) -> Shape:
    try:
        return Shape.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or shown(entry)
        raise UserError(
            f"{path}, shape of {shown(name)}: “{key}” is wrong or missing; a shape has"
            f" {', '.join(Shape.model_fields)}, whole numbers each."
        ) from None
