"""The block drafter: one network that fills all masks of a block in one pass, conditioned on the
target's hidden states.

Architecture of DFlash (Chen, Liang, Liu, 2026, section 4): features of several target layers are
fused once per committed token and enter *every* layer as keys and values; the block's rows see each
other in both directions and all context strictly before their anchor. Slot k of a block predicts
the token at position anchor + k (no shift); slot 0 is the anchor itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from .layers import FrozenEnds, KeyValues, Layer, Linear, RMSNorm, Rope, linear, rotate
from .markov import MarkovHead, MarkovTables


class BlockDrafterConfig(PreTrainedConfig):
    """Shape of a block drafter. Also reads z-lab's DFlash files, whose mask id and taps (and
    sometimes block size) are nested.

    Args:
        target_layer_ids: decoder layers of the target whose *outputs* are the features
            (``hidden_states[i + 1]``).
        block_size: slots of a block, anchor included.
        mask_token_id: a real row of the target's embedding that is never emitted; it stands for the
            mask in transformers' contract.
        context_projection: ``own`` (K/V projections for the context alone) or ``shared`` (DFlash).
        mask_embedding: ``learned`` (a vector of the drafter's) or ``token`` (the embedding row of
            ``mask_token_id``).
        qk_norm: per-head norm of queries and keys before rotation (Qwen3).
        markov_rank: inner width of the Markov head (:mod:`.markov`), 0 for a drafter without one.
    """

    model_type = "specdemo_block_drafter"

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
        rope_scaling=None,
        max_position_embeddings=8192,
        vocab_size=49152,
        block_size=None,
        num_target_layers=30,
        target_layer_ids=None,
        mask_token_id=None,
        qk_norm=True,
        context_projection="shared",
        mask_embedding="token",
        layer_types=None,
        dflash_config=None,
        markov_rank=0,
        **more,
    ):
        nested = dflash_config or {}
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
        self.rms_norm_eps, self.max_position_embeddings, self.vocab_size = (
            rms_norm_eps,
            max_position_embeddings,
            vocab_size,
        )
        self.rope_parameters = {
            "rope_type": "default",
            "rope_theta": rope_theta or 10000.0,
            **(rope_scaling or {}),
            **(rope_parameters or {}),
        }
        self.block_size = nested.get("block_size", 16) if block_size is None else block_size
        self.mask_token_id = nested.get("mask_token_id") if mask_token_id is None else mask_token_id
        self.num_target_layers = nested.get("num_target_layers", num_target_layers)
        self.target_layer_ids = list(
            nested.get("target_layer_ids", ()) if target_layer_ids is None else target_layer_ids
        )
        self.qk_norm, self.context_projection, self.mask_embedding = (
            qk_norm,
            context_projection,
            mask_embedding,
        )
        self.layer_types = layer_types or ["full_attention"] * num_hidden_layers
        self.markov_rank = markov_rank
        more.setdefault("tie_word_embeddings", False)
        super().__init__(**more)


class BlockDrafter(FrozenEnds, PreTrainedModel):
    """See the module. Two ways in: :meth:`forward` is transformers' DFlash contract with gradients;
    :meth:`extend` and :meth:`hidden` are the fast path of every diffusion method here. Both give
    the same numbers."""

    config_class = BlockDrafterConfig
    markov_tables: MarkovTables | None = None  # the Markov head in use, where the drafter has one
    main_input_name = "noise_embeds"
    base_model_prefix = "model"

    def __init__(self, config: BlockDrafterConfig, draft_vocab: torch.Tensor | None = None):
        super().__init__(config)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc, self.hidden_norm, self.norm = (
            linear(len(config.target_layer_ids) * size, size),
            RMSNorm(size, eps),
            RMSNorm(size, eps),
        )
        self.layers = nn.ModuleList(
            Layer(config, i, config.context_projection == "own")
            for i in range(config.num_hidden_layers)
        )
        self.mask_embedding = (
            nn.Parameter(torch.randn(size) * 0.02) if config.mask_embedding == "learned" else None
        )
        self.markov = MarkovHead(size, config.markov_rank) if config.markov_rank else None
        self.register_buffer("draft_vocab", draft_vocab)
        self.rope = Rope(config)
        self.post_init()

    @property
    def block_size(self) -> int:
        return self.config.block_size

    @property
    def layer_ids(self) -> tuple[int, ...]:
        return tuple(self.config.target_layer_ids)

    # -- with gradients: training, and transformers' own assisted generation -----------------------

    def context(self, features: torch.Tensor) -> torch.Tensor:
        """Features of committed tokens ``[..., taps * H]`` fused to ``[..., H]``, the same for
        every layer.
        """
        return self.hidden_norm(self.fc(features))

    def denoise(
        self,
        embeds: torch.Tensor,
        context: torch.Tensor | None,
        positions: torch.Tensor,
        attend: Callable,
    ) -> torch.Tensor:
        """One pass over block rows.

        Args:
            embeds: ``[B, n, H]`` block rows (several blocks may lie side by side; ``attend`` then
                keeps them apart).
            context: ``[B, c, H]`` from :meth:`context`, or None.
            positions: ``[B or 1, c + n]`` absolute positions of context, then of block rows.
            attend: ``(layer, q [B, Hq, n, D], k, v [B, Hkv, c + n, D]) -> [B, Hq, n, D]``.
        Returns:
            ``[B, n, H]`` normed hidden states, ready for the target's head.
        """
        rope, x = self.rope(positions, embeds.dtype), embeds
        for layer in self.layers:
            x = layer(x, context, rope, attend)
        return self.norm(x)

    def forward(
        self,
        noise_embeds,
        context_hidden_states=None,
        position_ids=None,
        attention_mask=None,
        cache=None,
        past_key_values=None,
        **_,
    ):
        """transformers' DFlash contract (``DFlashTokenCandidateGenerator``).

        Args:
            noise_embeds: ``[B, block, H]`` target embeddings of the anchor and of mask tokens. With
                a learned mask vector, slots from 1 on are taken to be masks and replaced by it.
            context_hidden_states: ``[B, c, taps * H]`` of the tokens committed since the last call.
            position_ids: ``[B, c + block]``; attention_mask: ``[B, past + c + block]``, zeros are
                never looked at.
            cache: a transformers cache that keeps K/V of context and block; the caller crops the
                block away (before transformers 5.24 it is called past_key_values).
        """
        cache = past_key_values if cache is None else cache
        n, rows = noise_embeds.shape[1], noise_embeds
        if self.mask_embedding is not None:
            rows = torch.cat(
                [rows[:, :1], self.mask_embedding.to(rows).expand(rows.shape[0], n - 1, -1)], 1
            )
        context = None if context_hidden_states is None else self.context(context_hidden_states)
        if position_ids is None:
            past = 0 if cache is None else cache.get_seq_length()
            position_ids = (
                past
                + torch.arange(
                    n + (0 if context is None else context.shape[1]), device=rows.device
                )[None]
            )
        allowed = None if attention_mask is None else attention_mask[:, None, None, :].bool()

        def attend(layer, q, k, v):
            if cache is not None:
                k, v = cache.update(k, v, layer.index)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)

        return BaseModelOutputWithPast(
            last_hidden_state=self.denoise(rows, context, position_ids, attend),
            past_key_values=cache,
        )

    # -- without gradients: the fast path ----------------------------------------------------------

    def bind(self, embedding: torch.Tensor, head: torch.Tensor) -> None:
        super().bind(embedding, head)
        device, dtype = embedding.device, embedding.dtype
        self.fused_fc = Linear(self.fc.weight, device, dtype)
        self.context_norm = self.hidden_norm.weight.detach().to(embedding)
        self.to_context = Linear(
            torch.cat(
                [p.weight.detach() for l in self.layers for p in l.self_attn.context_projections()]
            ),
            device,
            dtype,
        )
        self.mask_row = (
            self.mask_embedding.detach()
            if self.mask_embedding is not None
            else embedding[self.config.mask_token_id].detach()
        ).to(embedding)

        ids = (
            slice(min(self.config.vocab_size, head.shape[0]))
            if self.vocab_ids is None
            else self.vocab_ids
        )
        self.markov_tables = (
            None
            if self.markov is None
            else MarkovTables(self.markov, self.embedding[ids], head.detach()[ids])
        )

    def new_cache(self, capacity: int) -> KeyValues:
        """Empty context buffers for ``capacity`` positions (they grow where a batch of blocks needs
        more).
        """
        return KeyValues(
            self.config,
            self.rope,
            capacity + self.block_size,
            self.embedding.device,
            self.embedding.dtype,
        )

    @torch.no_grad()
    def extend(self, cache: KeyValues, features: torch.Tensor, start: int) -> None:
        """Append the context K/V of committed tokens: ``features [n, taps * H]`` at absolute
        positions start..start+n-1.
        """
        n, eps, c = features.shape[0], self.config.rms_norm_eps, self.config
        if not 0 <= start <= cache.length:
            raise ValueError(
                f"context must be appended without a gap: {cache.length} tokens are known, these"
                f" start at {start}"
            )
        cache.reserve(start + n)
        fused = self.fused_fc(features.to(self.embedding))
        rows = self.to_context(F.rms_norm(fused, fused.shape[-1:], self.context_norm, eps))
        rows = rows.view(n, c.num_hidden_layers, 2, c.num_key_value_heads, c.head_dim)
        k = rows[:, :, 0]  # [n, L, Hkv, D]
        if c.qk_norm:
            k = torch.stack(
                [layer.norm(k[:, i], layer.qk[1]) for i, layer in enumerate(self.fused)], 1
            )
        cos, sin = cache.at(start, n)
        cache.k[:, :, start : start + n] = rotate(k, cos[:, None], sin[:, None]).permute(1, 2, 0, 3)
        cache.v[:, :, start : start + n] = rows[:, :, 1].permute(1, 2, 0, 3)
        cache.length = start + n

    @torch.no_grad()
    def hidden(self, ids: torch.Tensor, anchor_position: int, cache: KeyValues) -> torch.Tensor:
        """Fill ``B`` blocks that share their context.

        Args:
            ids: ``[B, w]`` int64; -1 marks a mask, in any slot; slot k sits at position
                ``anchor_position + k``.
            cache: context; only what lies strictly before the anchor is seen. Not changed.
        Returns:
            ``[B, w, H]``, slot k for the token at ``anchor_position + k``.
        """
        batch, width = ids.shape
        n, seen = batch * width, min(cache.length, anchor_position)
        cache.reserve(max(cache.length + n, anchor_position + width))
        ids = ids.reshape(-1)
        x = torch.where(
            (ids < 0)[:, None], self.mask_row, F.embedding(ids.clamp(min=0), self.embedding)
        )
        rope = tuple(t.repeat(batch, 1, 1) for t in cache.at(anchor_position, width))
        mask = None
        # blocks lie side by side after the shared context; each sees the context and itself
        if batch > 1:
            block = torch.arange(n, device=ids.device) // width
            mask = torch.cat(
                [block.new_ones(n, seen, dtype=torch.bool), block[:, None] == block[None]], 1
            )
        for i, layer in enumerate(self.fused):
            x = layer(x, rope, _beside(cache, i, seen, n), mask)
        return F.rms_norm(x, x.shape[-1:], self.last_norm, self.config.rms_norm_eps).view(
            batch, width, -1
        )


def _beside(cache: KeyValues, index: int, seen: int, n: int) -> Callable:
    """Puts a block's keys and values behind the ``seen`` context slots; committed slots are never
    overwritten.
    """

    def remember(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = cache.k[index], cache.v[index]
        if seen < cache.length:
            return torch.cat([keys[:, :seen], k], 1), torch.cat([values[:, :seen], v], 1)
        keys[:, seen : seen + n], values[:, seen : seen + n] = k, v
        return keys[:, : seen + n], values[:, : seen + n]

    return remember
