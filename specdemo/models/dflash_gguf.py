"""DFlash drafters as GGUF, as llama.cpp loads them beside their target (``draft-dflash``).

Names of keys and tensors: llama.cpp b11434, ``src/models/dflash.cpp`` and ``conversion/qwen.py``.
The vocabulary is the target's own, copied out of the GGUF that llama.cpp runs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from .block_drafter import BlockDrafter
from .dflash_layout import check_dflash, dflash_tensors

ARCHITECTURE = "dflash"
OUTER = {"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm"}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a drafter's tensor."""
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, layer, inner = stem.split(".", 2)
    return f"blk.{layer}.{INNER[inner]}.{kind}"


def check_loadable(net: BlockDrafter, name: str) -> None:
    """Raises UserError: llama.cpp's loader cannot have this drafter."""
    check_dflash(net, name)
    config = net.config
    rope = config.rope_parameters.get("rope_type", "default")
    unread = {
        f"rope type {rope}": rope not in ("default", "linear"),
        "biases": config.biases != "none",
        "features of the target's embeddings": -1 in config.target_layer_ids,
    }
    for what, found in unread.items():
        if found:
            raise UserError(
                f"{name} has {what}, which its GGUF would not say to llama.cpp; export it with"
                " “--to hf” for another engine."
            )


def write_dflash_gguf(net: BlockDrafter, target: Path, out: Path, name: str) -> None:
    """Write ``net`` to ``out``: matrices in bf16, norms in float32.

    Args:
        target: GGUF of the target, from which the vocabulary is copied.
        name: of the drafter, in sentences and in the file.

    Raises:
        UserError: the drafter cannot be said in a GGUF, or was not made for this target; ``target``
            cannot be read, or ``out`` not written.
    """
    check_loadable(net, name)
    reader = _reader(target)
    _check_target(net, reader, target, name)
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        _write(net, reader, part, name)
        os.replace(part, out)
    except OSError as error:
        raise UserError(
            f"The drafter could not be written to {out} ({error.strerror or error}); choose another"
            " place or free some space."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _reader(target: Path) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(target)
    except (OSError, ValueError, KeyError, IndexError) as error:
        why = getattr(error, "strerror", None) or "it is not a whole GGUF"
        raise UserError(
            f"The target {target} cannot be read ({why}); give --target-gguf the file that"
            " llama.cpp runs."
        ) from None


def _check_target(net: BlockDrafter, reader: Any, target: Path, name: str) -> None:
    """Width, depth and vocabulary of the target that the drafter was trained for."""
    c = net.config

    def said(key: str) -> Any:
        field = reader.fields.get(key)
        return None if field is None else field.contents()

    kind = said("general.architecture")
    words = said("tokenizer.ggml.tokens") or ()
    for what, wanted, found in (
        ("hidden size", c.hidden_size, said(f"{kind}.embedding_length")),
        ("layers", c.num_target_layers, said(f"{kind}.block_count")),
        ("tokens", c.vocab_size, len(words)),
    ):
        if wanted is not None and wanted != found:
            raise UserError(
                f"{name} was made for a target with {what} {wanted}, and {target.name} has"
                f" {found}; give --target-gguf its own target."
            )


def _write(net: BlockDrafter, reader: Any, out: Path, name: str) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
    from gguf.quants import quantize

    writer = GGUFWriter(out, ARCHITECTURE)
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    _add_shape(writer, net)
    _copy_vocabulary(writer, reader)
    writer.add_uint32("tokenizer.ggml.mask_token_id", net.config.mask_token_id)
    bf16 = GGMLQuantizationType.BF16
    for ours, tensor in dflash_tensors(net).items():
        values = tensor.to(torch.float32).numpy()
        if tensor.dim() == 1:  # norms, which llama.cpp reads in float32 alone
            writer.add_tensor(gguf_name(ours), values)
        else:
            writer.add_tensor(gguf_name(ours), quantize(values, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any, net: BlockDrafter) -> None:
    c = net.config
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(float(c.rope_parameters["rope_theta"]))
    if c.rope_parameters.get("rope_type", "default") == "linear":
        from gguf import RopeScalingType

        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(c.rope_parameters["factor"]))
    writer.add_vocab_size(c.vocab_size)
    writer.add_uint32(f"{ARCHITECTURE}.block_size", c.block_size)
    # llama.cpp counts the inputs of layers, DFlash their outputs
    writer.add_array(f"{ARCHITECTURE}.target_layers", [i + 1 for i in c.target_layer_ids])


def _copy_vocabulary(writer: Any, reader: Any) -> None:
    from gguf import GGUFValueType

    for key, field in reader.fields.items():
        if not key.startswith("tokenizer.") or key == "tokenizer.ggml.mask_token_id":
            continue
        listed = field.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(
            key, field.contents(), field.types[0], sub_type=field.types[-1] if listed else None
        )
