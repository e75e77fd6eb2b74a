"""Pairs of known models' shapes with random weights, so that what the engine takes beside a pass
can be measured on any machine without fetching a model.

The target says the token that it reads once more, whatever stands before: its layers are random,
but add so little that the embedding decides, and the head is the embedding. So what it writes is
known beforehand, and a draft can be made right for just as many tokens as are wanted.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen3Config

from ..drafters.block import BlockChain, Params
from ..drafters.parts.base import Context, Draft
from ..errors import UserError
from ..models.block_drafter import BlockDrafter, BlockDrafterConfig
from ..models.load import Loaded
from ..models.needs import own_memory
from ..models.pairs import Pair

QUIET = 1e-3  # what the layers' outputs are scaled by
DRAFTER_LAYERS, BLOCK, TAPS = 5, 16, 5  # as published DFlash drafters have
POSITIONS = 4096
SPARE = 1.15  # caches, logits and rows beside the weights

_QWEN3: dict[str, Any] = dict(vocab_size=151_936, num_key_value_heads=8, head_dim=128)
_LLAMA: dict[str, Any] = dict(hidden_act="silu", attention_bias=False)
SHAPES: dict[str, PretrainedConfig] = {
    "smollm2-135m": LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, **_LLAMA,
    ),
    "qwen3-0.6b": Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        tie_word_embeddings=True, **_QWEN3,
    ),
    "qwen3-4b": Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        tie_word_embeddings=True, **_QWEN3,
    ),
    "qwen3-8b": Qwen3Config(
        hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32,
        tie_word_embeddings=False, **_QWEN3,
    ),
    "llama3-8b": LlamaConfig(
        vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False, **_LLAMA,
    ),
}  # fmt: skip


class Numbers:
    """A tokenizer for a vocabulary without words: a token reads as its number."""

    chat_template = None

    def __init__(self, size: int):
        self.size = size

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % self.size for letter in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(f" {i}" for i in ids)


def random_pair(shape: str, dtype: torch.dtype, device: torch.device) -> Loaded:
    """A target of that shape and a block drafter for it.

    Raises:
        UserError: there is no such shape, or too little memory.
    """
    if shape not in SHAPES:
        raise UserError(f"There is no shape “{shape}”; shapes are {', '.join(SHAPES)}.")
    config = SHAPES[shape]
    config.max_position_embeddings = POSITIONS
    _check_memory(shape, config, dtype, device)
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    model.eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(QUIET)
        layer.mlp.down_proj.weight.mul_(QUIET)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if head is not embedding:
        head.copy_(embedding)
    with torch.device(device):
        net: Any = BlockDrafter(_drafter_config(config))
    net.to(dtype).eval().requires_grad_(False)
    net.bind(embedding, head)
    net.weights = "random weights"
    pair = Pair(
        id=shape, title=f"random weights of the shape {shape}", license="none", size="",
        target=(), drafters={"block": "random"},
    )  # fmt: skip
    return Loaded(
        pair, model, Numbers(config.vocab_size - 1), (), dtype, device, networks={"block": net}
    )


def _drafter_config(c: Any) -> BlockDrafterConfig:
    last = c.num_hidden_layers - 1
    return BlockDrafterConfig(
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_hidden_layers=DRAFTER_LAYERS,
        num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads,
        head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        rms_norm_eps=c.rms_norm_eps,
        max_position_embeddings=c.max_position_embeddings,
        vocab_size=c.vocab_size,
        block_size=BLOCK,
        num_target_layers=c.num_hidden_layers,
        mask_token_id=c.vocab_size - 1,
        target_layer_ids=sorted({round(i * last / (TAPS - 1)) for i in range(TAPS)}),
    )


def parameters(config: PretrainedConfig) -> int:
    """How many a target of that shape has, the drafter's included."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        parts = (model, BlockDrafter(_drafter_config(config)))
    return sum(p.numel() for part in parts for p in part.parameters())


def _check_memory(
    shape: str, config: PretrainedConfig, dtype: torch.dtype, device: torch.device
) -> None:
    copies = 1 if device.type == "cuda" else 2  # products on a CPU have weights of their own layout
    need = parameters(config) * dtype.itemsize * copies * SPARE
    if device.type == "cuda":
        free, where = float(torch.cuda.mem_get_info(device)[0]), "The GPU"
    else:
        free, where = float(own_memory().free), "This computer"
    if need > free:
        raise UserError(
            f"The shape {shape} needs {need / 2**30:.1f} GiB of memory here. {where} has"
            f" {free / 2**30:.1f} GiB free; choose a smaller shape, or a machine with more."
        )


class ForcedChain(BlockChain):
    """The method “block”, whose network runs as always, with other tokens in its drafts: right for
    as many as make ``tokens_per_round`` on average, wrong behind them.

    Raises:
        UserError: no draft is as long.
    """

    def __init__(self, loaded: Loaded, tokens_per_round: float):
        super().__init__(loaded, Params.model_validate({"gamma": BLOCK - 1}))
        if not 1 <= tokens_per_round <= self.params.gamma + 1:
            raise UserError(
                f"--force-tokens-per-round must lie between 1 and {self.params.gamma + 1}, not"
                f" {tokens_per_round:g}."
            )
        self.vocab_size = loaded.model.config.vocab_size
        self.more, self.owed = tokens_per_round - 1, 0.0

    def propose(self, context: Context) -> Draft:
        draft, anchor = super().propose(context), context.ids[-1]
        self.owed += self.more
        right = min(int(self.owed + 1e-6), len(draft.tokens))
        self.owed -= right
        wrong = (anchor + 1) % self.vocab_size
        draft.tokens = [anchor] * right + [wrong] * (len(draft.tokens) - right)
        return draft
