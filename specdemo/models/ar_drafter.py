"""The small autoregressive drafter: an ordinary causal decoder of the block drafter's size, between
the target's own embedding and head; or a language model of its own (:mod:`.language_model`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from .decoder import CHUNK_ROWS, WindowCache
from .layers import DrafterConfig, Layer, Rope, TargetEmbeddings, linear
from .text_pass import text_pass


class ArDrafterConfig(DrafterConfig):
    """Shape of the autoregressive drafter."""

    model_type = "specdemo_ar_drafter"

    def __init__(self, qk_norm: bool = False, **more: Any) -> None:
        # without an __init__ of its own, transformers would not call the parent's
        super().__init__(qk_norm=qk_norm, **more)


class ArDrafter(TargetEmbeddings, PreTrainedModel):
    """Row i of its output predicts the token after row i (the usual shift), unlike the block
    drafter's rows.
    """

    config_class = ArDrafterConfig
    main_input_name = "embeds"
    layer_ids: tuple[int, ...] = ()

    def __init__(self, config: ArDrafterConfig, draft_vocab: torch.Tensor | None = None):
        super().__init__(config)
        self.layers = nn.ModuleList(
            Layer(config, i, own_context=False) for i in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.own_head:
            self.lm_head = linear(config.hidden_size, config.vocab_size)
        self.register_buffer("draft_vocab", draft_vocab)
        self.rope = Rope(config)
        self.post_init()

    def forward(self, embeds: torch.Tensor) -> torch.Tensor:
        """With gradients: target embeddings ``[B, n, H]`` at positions 0..n-1 to normed hidden
        states ``[B, n, H]``.
        """
        positions = torch.arange(embeds.shape[1], device=embeds.device)[None]
        rope, x = self.rope(positions, embeds.dtype), embeds

        def attend(_: Layer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        for layer in self.layers:
            x = layer(x, None, rope, attend)
        return self.norm(x)

    @torch.no_grad()
    def step(
        self, ids: torch.Tensor, position: int, cache: WindowCache, last_only: bool = False
    ) -> torch.Tensor:
        """Read ``ids [n]`` at positions position..position+n-1 and return the logits after each,
        ``[n, Vd]``, or after the last, ``[1, Vd]``; of more than the drafter's window only the
        last, and each sees the window that ends with itself. The cache then ends behind them.

        Raises:
            ValueError: ``position`` lies behind the end of the cache.
        """
        position, ids = cache.clip(position, ids)
        hidden = []
        for chunk in ids.split(CHUNK_ROWS):
            # a target may have rows that a language model of its own lacks
            x = F.embedding(chunk.clamp(max=len(self.embedding) - 1), self.embedding)
            hidden.append(text_pass(self, x, position, cache))
            position += len(chunk)
        return self.logits(hidden[-1][-1:] if last_only else torch.cat(hidden))
