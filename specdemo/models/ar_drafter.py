"""The small autoregressive drafter: an ordinary causal decoder of the block drafter's size, between
the target's own embedding and head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from .layers import FrozenEnds, KeyValues, Layer, RMSNorm, Rope


class ArDrafterConfig(PreTrainedConfig):
    """Shape of the autoregressive drafter; fields as in Llama."""

    model_type = "specdemo_ar_drafter"

    def __init__(
        self,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=None,
        rms_norm_eps=1e-5,
        rope_theta=None,
        rope_parameters=None,
        max_position_embeddings=8192,
        vocab_size=49152,
        qk_norm=False,
        **more,
    ):
        self.hidden_size, self.intermediate_size, self.num_hidden_layers = (
            hidden_size,
            intermediate_size,
            num_hidden_layers,
        )
        self.num_attention_heads, self.num_key_value_heads = (
            num_attention_heads,
            num_key_value_heads,
        )
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.rms_norm_eps, self.max_position_embeddings, self.vocab_size, self.qk_norm = (
            rms_norm_eps,
            max_position_embeddings,
            vocab_size,
            qk_norm,
        )
        self.rope_parameters = {
            "rope_type": "default",
            "rope_theta": rope_theta or 10000.0,
            **(rope_parameters or {}),
        }
        more.setdefault("tie_word_embeddings", False)
        super().__init__(**more)


class ArDrafter(FrozenEnds, PreTrainedModel):
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
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("draft_vocab", draft_vocab)
        self.rope = Rope(config)
        self.post_init()

    def forward(self, embeds: torch.Tensor) -> torch.Tensor:
        """With gradients: target embeddings ``[B, n, H]`` at positions 0..n-1 to normed hidden
        states ``[B, n, H]``.
        """
        rope, x = (
            self.rope(torch.arange(embeds.shape[1], device=embeds.device)[None], embeds.dtype),
            embeds,
        )
        for layer in self.layers:
            x = layer(
                x,
                None,
                rope,
                lambda _, q, k, v: F.scaled_dot_product_attention(
                    q, k, v, is_causal=True, enable_gqa=True
                ),
            )
        return self.norm(x)

    def new_cache(self, capacity: int) -> KeyValues:
        """Empty K/V buffers; ``cache.length = n`` forgets everything from position n on."""
        return KeyValues(
            self.config, self.rope, capacity, self.embedding.device, self.embedding.dtype
        )

    @torch.no_grad()
    def step(self, ids: torch.Tensor, position: int, cache: KeyValues) -> torch.Tensor:
        """Read ``ids [n]`` at positions position..position+n-1 and return the logits after each,
        ``[n, Vd]``.
        """
        n = ids.shape[0]
        if not 0 <= position <= cache.length:
            raise ValueError(
                f"tokens must be read without a gap: {cache.length} are known, these start at"
                f" {position}"
            )
        end = position + n
        cache.reserve(end)
        slots = torch.arange(end, device=ids.device)
        mask = None if n == 1 else slots[None] <= slots[position:, None]
        x, rope = F.embedding(ids, self.embedding), cache.at(position, n)
        for i, layer in enumerate(self.fused):
            x = layer(x, rope, _behind(cache, i, position, end), mask)
        cache.length = end
        return self.logits(F.rms_norm(x, x.shape[-1:], self.last_norm, self.config.rms_norm_eps))


def _behind(cache: KeyValues, index: int, start: int, end: int):
    """Stores the new keys and values of one layer and returns all of them up to ``end``."""

    def remember(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cache.k[index][:, start:end], cache.v[index][:, start:end] = k, v
        return cache.k[index][:, :end], cache.v[index][:, :end]

    return remember
