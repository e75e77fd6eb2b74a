"""A model out of a GGUF file. Who names a package in models.yaml may name one with any file in it,
so that what the file says of itself is compared before memory is taken for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UserError, first_line
from .hf_progress import no_progress_bars

MOST_LAYERS = 1_000  # more than any model has; each takes time even where it takes no memory


def load_gguf(gguf: Path) -> tuple[Any, Any]:
    """Model in bfloat16, its weights no longer in blocks, and tokenizer.

    Raises:
        UserError: no GGUF, not one of a language model known here, or one that lacks weights.
    """
    from .gguf_tokenizer import load_tokenizer

    try:
        with no_progress_bars():
            return _model(gguf), load_tokenizer(gguf)
    except UserError:
        raise
    except Exception as error:  # of struct, NumPy, transformers: each reader has its own
        raise UserError(
            f"the GGUF file {gguf.name} cannot be read ({first_line(error)}); use another source"
            " in models.yaml"
        ) from None


def _model(gguf: Path) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    config: Any = AutoConfig.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    layers = getattr(config, "num_hidden_layers", 0)
    if not 1 <= layers <= MOST_LAYERS:
        raise UserError(f"the GGUF file {gguf.name} says that it has {layers} layers")
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    wanted, held = sum(p.numel() for p in empty.parameters()), _weights(gguf)
    if held < wanted:
        raise UserError(
            f"the GGUF file {gguf.name} holds {held:,} weights and its model has {wanted:,}; use"
            " another source in models.yaml"
        )
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        trust_remote_code=False,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    for part in (model.config, model.generation_config):
        if hasattr(part, "quantization_config"):
            # the weights are plain now, and save_pretrained refuses a GGUF config
            del part.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    return model


def _weights(gguf: Path) -> int:
    from gguf import GGUFReader

    return sum(int(tensor.n_elements) for tensor in GGUFReader(gguf).tensors)
