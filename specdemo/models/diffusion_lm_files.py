"""Stand-alone diffusion language models on disk: read in their published layout, compared with the
target's tokenizer. No code of their folders runs.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open

from ..errors import UserError, first_line
from .decoder import DecoderLayer, DecoderShape, rms_norm
from .diffusion_configs import FAMILIES, Family, Names, read_config
from .diffusion_lm import DiffusionConfig, DiffusionLM
from .drafter_files import shard_files
from .layers import Rope
from .linear import Linear
from .load import Loaded
from .mdlm import DiTLayer, condition, final_norm
from .validate import finite


class Vocabulary(NamedTuple):
    """A tokenizer's tokens by id, and which of them are added to its base (special ones)."""

    tokens: dict[int, str]
    added: set[int]


def read_diffusion_lm(folder: Path, raw: dict[str, Any], loaded: Loaded) -> DiffusionLM:
    """The diffusion language model in ``folder``, whose config.json is ``raw``, on the target's
    device and in its dtype.

    Raises:
        UserError: its files are damaged, say something that is not computed here, or its tokens are
            not the target's.
    """
    family, theirs = FAMILIES[raw["model_type"]], read_vocabulary(folder)
    mask = None
    if theirs is not None and family.mask is not None:
        mask = next((i for i, text in theirs.tokens.items() if text == family.mask), None)
    config = read_config(raw, folder, mask)
    ours = Vocabulary(
        {i: text for text, i in loaded.tokenizer.get_vocab().items()},
        {*loaded.tokenizer.all_special_ids, *loaded.tokenizer.added_tokens_decoder},
    )
    unknown = foreign_ids(ours, theirs, config, folder)
    rows = min(
        config.vocab_size,
        loaded.model.config.get_text_config().vocab_size,
        max(ours.tokens) + 1,
    )
    banned = torch.tensor(sorted(i for i in unknown if i < rows), dtype=torch.int64)
    tensors = Tensors(folder, loaded.device, loaded.dtype)
    build = _transformer if family.names is None else partial(_llama, family, family.names)
    net = build(config, raw, tensors, rows, banned.to(loaded.device))
    tensors.check_rest()
    return net


# -- tokens ----------------------------------------------------------------------------------------


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """The tokens of a folder's tokenizer, from ``tokenizer.json`` or from ``vocab.json`` and
    ``added_tokens.json``; None where there is neither. Nothing of transformers is used, as a
    tokenizer's class may be code of the folder's.

    Raises:
        UserError: a file is damaged.
    """
    from tokenizers import Tokenizer

    whole, base = folder / "tokenizer.json", folder / "vocab.json"
    try:
        if whole.is_file():
            made = Tokenizer.from_file(str(whole))
            tokens = {i: text for text, i in made.get_vocab(with_added_tokens=True).items()}
            return Vocabulary(tokens, set(made.get_added_tokens_decoder()))
        if not base.is_file():
            return None
        ids = dict(json.loads(base.read_text(encoding="utf-8")))
        extra: dict[str, int] = {}
        if (folder / "added_tokens.json").is_file():
            extra = dict(json.loads((folder / "added_tokens.json").read_text(encoding="utf-8")))
        return Vocabulary({int(i): t for t, i in (ids | extra).items()}, set(extra.values()))
    except Exception as error:  # the library's own error has no class
        raise UserError(
            f"The tokenizer of the drafter in {folder} is damaged ({first_line(error)}); fetch it"
            " again."
        ) from None


def foreign_ids(
    ours: Vocabulary, theirs: Vocabulary | None, config: DiffusionConfig, folder: Path
) -> set[int]:
    """Ids that must never be proposed: the mask, and those that are another token, or none, to the
    target. Only ids that are added tokens, or none, to both may differ.

    Raises:
        UserError: the drafter's tokens are not the target's.
    """
    if theirs is None:
        _check_count(ours, config, folder)
        return {config.mask_token_id}
    ids = ours.tokens.keys() | theirs.tokens.keys()
    other = {i for i in ids if ours.tokens.get(i) != theirs.tokens.get(i)}
    sides = (ours, theirs)
    wrong = sorted(i for i in other if any(i in s.tokens and i not in s.added for s in sides))
    if wrong:
        table = "; ".join(
            f"id {i} is {ours.tokens.get(i)!r} to the target and {theirs.tokens.get(i)!r} to the"
            " drafter"
            for i in wrong[:3]
        )
        raise UserError(
            f"The {config.family} drafter in {folder} has a tokenizer of its own ({len(wrong)} of"
            f" its tokens differ: {table}), so its drafts mean nothing to this target; choose a"
            " drafter with the target's tokenizer."
        )
    mask = config.mask_token_id
    if mask in theirs.tokens and mask not in theirs.added:
        raise UserError(
            f"The {config.family} drafter in {folder} uses mask id {mask}, which is the real token"
            f" {theirs.tokens[mask]!r}; correct mask_token_id in its config.json."
        )
    return {*other, mask}


def _check_count(ours: Vocabulary, config: DiffusionConfig, folder: Path) -> None:
    """A folder without tokenizer: MDLM's embedding has one row more than its tokenizer tokens."""
    tokens = config.vocab_size - 1
    behind = config.mask_token_id == tokens
    if config.random_order and behind and ours.tokens.keys() == set(range(tokens)):
        return
    if config.random_order:
        raise UserError(
            f"The {config.family} drafter in {folder} has no tokenizer files and {tokens} tokens"
            f" and a mask, and this target has {len(ours.tokens)} tokens; choose a target of its"
            " tokenizer (GPT-2 for the published ones)."
        )
    raise UserError(
        f"The {config.family} drafter in {folder} has no tokenizer.json and no vocab.json, so it"
        " cannot be told whether its tokens are the target's; fetch it again with them."
    )


# -- tensors ---------------------------------------------------------------------------------------


class Tensors:
    """The tensors of a folder, read one by one to where they are used.

    Raises:
        UserError: one is missing, damaged, of another shape or not finite.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        self.folder, self.device, self.dtype = folder, device, dtype
        self._files: dict[str, Path] = {}
        for file in shard_files(folder):
            with self._readable(file), safe_open(file, "pt") as opened:
                self._files |= dict.fromkeys(opened.keys(), file)
        self._left = set(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The tensor of that name, which must have ``shape`` where one is given."""
        if name not in self._files:
            raise UserError(
                f"The drafter in {self.folder} lacks the weights {name}; its config.json does not"
                " belong to them, so fetch it again."
            )
        self._left.discard(name)
        file = self._files[name]
        with self._readable(file), safe_open(file, "pt") as opened:
            tensor = opened.get_tensor(name)
        if shape and tuple(tensor.shape) != shape:
            raise UserError(
                f"The drafter in {self.folder} has {name} of shape {list(tensor.shape)} where its"
                f" config.json asks for {list(shape)}; fetch it again."
            )
        if not tensor.is_floating_point() or not finite(tensor):
            raise UserError(
                f"The drafter in {self.folder} has values in {name} that are not finite numbers;"
                " fetch it again."
            )
        return tensor.to(self.device, dtype or self.dtype)

    def check_rest(self) -> None:
        """Refuse tensors that nothing was made of; tables of rotations can be worked out."""
        left = sorted(n for n in self._left if not n.endswith("rotary_emb.inv_freq"))
        if left:
            raise UserError(
                f"The drafter in {self.folder} has weights that its config.json does not explain"
                f" ({len(left)}, for instance {left[0]}); fetch it again or choose another."
            )

    def _readable(self, file: Path) -> _Readable:
        return _Readable(file)


class _Readable:
    """Turns the errors of reading ``file`` into a sentence."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (SafetensorError, OSError, ValueError)):
            raise UserError(
                f"The weights file {self.file} is damaged or cut short ({first_line(error)}); fetch"
                " this drafter again."
            ) from None


def _llama(
    family: Family,
    names: Names,
    c: DiffusionConfig,
    raw: dict[str, Any],
    tensors: Tensors,
    rows: int,
    banned: torch.Tensor,
) -> DiffusionLM:
    """A network of Llama or Qwen layers."""
    key = family.keys.get
    hidden = raw[key("hidden_size", "hidden_size")]
    inner = raw[key("intermediate_size", "intermediate_size")]
    embedding = tensors.take(f"{names.embed}.weight", c.vocab_size, hidden)
    tied = raw.get(key("tie_word_embeddings", "tie_word_embeddings"))
    head = embedding
    if f"{names.head}.weight" in tensors or not tied:
        head = tensors.take(f"{names.head}.weight", c.vocab_size, hidden)
    if tied:  # whatever is stored
        head = embedding
    layers = [
        _layer(family, names, c, tensors, i, hidden, inner) for i in range(c.num_hidden_layers)
    ]
    norm = tensors.take(f"{names.norm}.weight", hidden)
    return DiffusionLM(
        c,
        lambda ids: F.embedding(ids, embedding),
        layers,
        lambda states: rms_norm(states, norm, c.rms_norm_eps),
        Linear(head[:rows]),
        None,
        Rope(c),
        banned,
    )


def _layer(
    family: Family,
    names: Names,
    c: DiffusionConfig,
    tensors: Tensors,
    index: int,
    hidden: int,
    inner: int,
) -> DecoderLayer:
    prefix = names.layer.format(index)
    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim

    def take(part: str, *shape: int) -> torch.Tensor:
        return tensors.take(f"{prefix}{part}", *shape)

    def weight(part: str, out: int, into: int) -> torch.Tensor:
        return take(f"{part}.weight", out, into)

    qkv = ((names.q, q_size), (names.k, kv_size), (names.v, kv_size))
    return DecoderLayer(
        index,
        DecoderShape(c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps),
        attention_norm=take(f"{names.attention_norm}.weight", hidden),
        qkv=Linear(torch.cat([weight(part, size, hidden) for part, size in qkv])),
        qkv_bias=torch.cat([take(f"{part}.bias", size) for part, size in qkv])
        if family.bias
        else None,
        q_norm=take(f"{names.q_norm}.weight", c.head_dim) if family.qk_norm else None,
        k_norm=take(f"{names.k_norm}.weight", c.head_dim) if family.qk_norm else None,
        out=Linear(weight(names.out, hidden, q_size)),
        mlp_norm=take(f"{names.mlp_norm}.weight", hidden),
        gate_up=Linear(
            torch.cat([weight(names.gate, inner, hidden), weight(names.up, inner, hidden)])
        ),
        down=Linear(weight(names.down, hidden, inner)),
    )


def _transformer(
    c: DiffusionConfig, raw: dict[str, Any], tensors: Tensors, rows: int, banned: torch.Tensor
) -> DiffusionLM:
    """MDLM's and BD3LM's diffusion transformer."""
    hidden, out = raw["hidden_dim"], "backbone.output_layer.linear."

    def take(name: str) -> torch.Tensor:
        return tensors.take(name, dtype=torch.float32)

    embedding = tensors.take(
        "backbone.vocab_embed.embedding", c.vocab_size, hidden, dtype=torch.float32
    )
    at_zero = condition(take)
    layers = [
        DiTLayer.load(take, i, c.num_attention_heads, at_zero, tensors.dtype)
        for i in range(c.num_hidden_layers)
    ]
    rope, stored = Rope(c), "backbone.rotary_emb.inv_freq"
    if stored in tensors:  # a buffer that the published code loads
        rope.inverse = tensors.take(stored, c.head_dim // 2, dtype=torch.float32).cpu()
    return DiffusionLM(
        c,
        lambda ids: F.embedding(ids, embedding),
        layers,
        final_norm(take, at_zero),
        Linear(tensors.take(out + "weight", c.vocab_size, hidden)[:rows]),
        tensors.take(out + "bias", c.vocab_size)[:rows],
        rope,
        banned,
    )
