"""The block drafter: one network that fills all masks of a block in one pass, conditioned on the
target's hidden states.

Architecture of DFlash (Chen, Liang, Liu, 2026, section 4): features of several target layers are
fused once per committed token and enter *every* layer as keys and values; the block's rows see each
other in both directions and all context strictly before their anchor. Slot k of a block predicts
the token at position anchor + k (no shift); slot 0 is the anchor itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from .compiled import MAX_ROWS, Reads, hide
from .decoder import CHUNK_ROWS, ROW_STEP, WindowCache, rms_norm, rotate, whole_steps
from .layers import DrafterConfig, Layer, Rope, TargetEmbeddings, linear
from .linear import Linear
from .markov import MarkovHead, MarkovTables

MASK = -1  # the id of a masked slot in the blocks given to :meth:`BlockDrafter.hidden`


class BlockDrafterConfig(DrafterConfig):
    """Shape of a block drafter. Also reads z-lab's DFlash files, whose mask id and taps (and
    sometimes block size) are nested.

    Args:
        block_size: slots of a block, anchor included.
        target_layer_ids: decoder layers of the target whose *outputs* are the features
            (``hidden_states[i + 1]``).
        mask_token_id: a real row of the target's embedding that is never emitted; it stands for the
            mask in transformers' contract.
        context_projection: ``own`` (K/V projections for the context alone) or ``shared`` (DFlash).
        mask_embedding: ``learned`` (a vector of the drafter's) or ``token`` (the embedding row of
            ``mask_token_id``).
        markov_rank: inner width of the Markov head (:mod:`.markov`), 0 for a drafter without one.
        rope_scaling, dflash_config: as in z-lab's files.
    """

    model_type = "specdemo_block_drafter"

    def __init__(
        self,
        num_hidden_layers: int = 4,
        block_size: int | None = None,
        num_target_layers: int = 30,
        target_layer_ids: list[int] | None = None,
        mask_token_id: int | None = None,
        qk_norm: bool = True,
        context_projection: Literal["own", "shared"] = "shared",
        mask_embedding: Literal["learned", "token"] = "token",
        layer_types: list[str] | None = None,
        rope_parameters: dict[str, Any] | None = None,
        rope_scaling: dict[str, Any] | None = None,
        dflash_config: dict[str, Any] | None = None,
        markov_rank: int = 0,
        **more: Any,
    ) -> None:
        nested = dflash_config or {}
        self.block_size = nested.get("block_size", 16) if block_size is None else block_size
        self.mask_token_id = nested.get("mask_token_id") if mask_token_id is None else mask_token_id
        self.num_target_layers = nested.get("num_target_layers", num_target_layers)
        self.target_layer_ids = list(
            nested.get("target_layer_ids", ()) if target_layer_ids is None else target_layer_ids
        )
        self.context_projection = context_projection
        self.mask_embedding = mask_embedding
        self.layer_types = layer_types or ["full_attention"] * num_hidden_layers
        self.markov_rank = markov_rank
        super().__init__(
            num_hidden_layers=num_hidden_layers,
            qk_norm=qk_norm,
            rope_parameters={**(rope_scaling or {}), **(rope_parameters or {})},
            **more,
        )


class BlockDrafter(TargetEmbeddings, PreTrainedModel):
    """See the module. Two ways in: :meth:`forward` is transformers' DFlash contract with gradients;
    :meth:`extend` and :meth:`hidden` are the fast path of every diffusion method here. Both give
    the same numbers.
    """

    config_class = BlockDrafterConfig
    markov_tables: MarkovTables | None = None  # the Markov head in use, where the drafter has one
    main_input_name = "noise_embeds"
    base_model_prefix = "model"

    def __init__(self, config: BlockDrafterConfig, draft_vocab: torch.Tensor | None = None):
        super().__init__(config)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = linear(len(config.target_layer_ids) * size, size)
        self.hidden_norm = nn.RMSNorm(size, eps)
        self.norm = nn.RMSNorm(size, eps)
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
        noise_embeds: torch.Tensor,
        context_hidden_states: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> BaseModelOutputWithPast:
        """transformers' DFlash contract (``DFlashTokenCandidateGenerator``).

        Args:
            noise_embeds: ``[B, block, H]`` target embeddings of the anchor and of mask tokens. With
                a learned mask vector, slots from 1 on are taken to be masks and replaced by it.
            context_hidden_states: ``[B, c, taps * H]`` of the tokens committed since the last call.
            position_ids: ``[B, c + block]``.
            attention_mask: ``[B, past + c + block]``; zeros are never attended to.
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
            count = n + (0 if context is None else context.shape[1])
            position_ids = past + torch.arange(count, device=rows.device)[None]
        allowed = None if attention_mask is None else attention_mask[:, None, None, :].bool()

        def attend(layer: Layer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if cache is not None:
                k, v = cache.update(k, v, layer.index)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)

        hidden = self.denoise(rows, context, position_ids, attend)
        # every supported version of transformers takes the older name of the cache
        return BaseModelOutputWithPast(hidden, past_key_values=cache)  # type: ignore[call-arg]

    # -- without gradients: the fast path ----------------------------------------------------------

    def bind(
        self, embedding: torch.Tensor, head: torch.Tensor, known_ids: int | None = None
    ) -> None:
        super().bind(embedding, head, known_ids)
        device, dtype = embedding.device, embedding.dtype
        rows = min(self.config.vocab_size, head.shape[0], known_ids or head.shape[0])
        self.fused_fc = Linear(self.fc.weight, device, dtype)
        self.context_norm = self.hidden_norm.weight.detach().to(embedding)
        to_context = [p for l in self.layers for p in l.self_attn.context_projections()]
        self.to_context = Linear(torch.cat([p.weight.detach() for p in to_context]), device, dtype)
        mask_row = (
            embedding[self.config.mask_token_id]
            if self.mask_embedding is None
            else self.mask_embedding
        )
        self.mask_row = mask_row.detach().to(embedding)
        self.markov_tables = None
        if self.markov is not None:
            ids = slice(rows) if self.vocab_ids is None else self.vocab_ids
            self.markov_tables = MarkovTables(self.markov, self.embedding[ids], head.detach()[ids])

    def new_cache(self, capacity: int) -> WindowCache:
        """An empty context cache for ``capacity`` positions and one block behind them; it grows
        where a batch of blocks needs more.
        """
        return super().new_cache(capacity + self.block_size)

    @torch.no_grad()
    def extend(self, cache: WindowCache, features: torch.Tensor, start: int) -> None:
        """Append the context K/V of committed tokens: ``features [n, taps * H]`` at absolute
        positions start..start+n-1, of which only the drafter's window is worked out.

        Raises:
            ValueError: ``start`` lies behind the end of the cache.
        """
        start, features = cache.clip(start, features)
        slot = cache.place(start, len(features))
        for rows in features.split(CHUNK_ROWS):
            n = len(rows)
            if n > ROW_STEP:  # else few row counts are possible, and this is every round's way
                rows = F.pad(rows, (0, 0, 0, whole_steps(n) - n))
            k, v = self.context_rows(rows, *self.rope_table.rows(start, len(rows)))
            cache.keys[:, :, slot : slot + n] = k[:, :, :n]
            cache.values[:, :, slot : slot + n] = v[:, :, :n]
            start, slot = start + n, slot + n
        cache.length = slot

    @torch.no_grad()
    def context_rows(
        self, features: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Context K and V ``[L, Hkv, n, D]`` of ``features [n, taps * H]``; ``cos``, signed
        ``sin``: ``[n, 1, D]`` of their positions.
        """
        eps, c = self.config.rms_norm_eps, self.config
        fused = self.fused_fc(features.to(self.embedding))
        rows = self.to_context(rms_norm(fused, self.context_norm, eps))
        rows = rows.view(len(rows), c.num_hidden_layers, 2, c.num_key_value_heads, c.head_dim)
        k = rows[:, :, 0]  # [n, L, Hkv, D]
        if c.qk_norm:
            k = torch.stack([layer.norm_keys(k[:, layer.index]) for layer in self.fused], 1)
        k = rotate(k, cos[:, None], sin[:, None])
        return k.permute(1, 2, 0, 3), rows[:, :, 1].permute(1, 2, 0, 3)

    @torch.no_grad()
    def hidden(self, ids: torch.Tensor, anchor_position: int, cache: WindowCache) -> torch.Tensor:
        """Fill ``B`` blocks that share their context.

        Args:
            ids: ``[B, w]`` int64; :data:`MASK` marks a mask, in any slot; slot k sits at position
                ``anchor_position + k``.
            cache: context; only the window strictly before the anchor is seen. What is committed
                does not change.

        Returns:
            ``[B, w, H]``, slot k for the token at ``anchor_position + k``.
        """
        batch, width = ids.shape
        n = batch * width
        first, last = cache.seen(anchor_position)
        cache.reserve(cache.length + n)
        same_block = self._same_block(batch, width)
        ids = ids.reshape(-1)
        embeds = F.embedding(ids.clamp(min=0), self.embedding)
        x = torch.where((ids == MASK)[:, None], self.mask_row, embeds)
        cos, sin = (t.repeat(batch, 1, 1) for t in self.rope_table.rows(anchor_position, width))
        group = self.config.num_attention_heads // self.config.num_key_value_heads
        if self.compiled is not None and last == cache.length and n <= MAX_ROWS:
            hidden = None if same_block is None else hide(same_block, group)
            reads = Reads(first, last, last + n, hidden)
            return self.compiled(x, cos, sin, cache, last, reads)[0].view(batch, width, -1)
        # bool [G * B * w, context + B * w]
        mask = None
        if same_block is not None:
            mask = F.pad(same_block, (last - first, 0), value=True).repeat(group, 1)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if last == cache.length:
                keys, values = cache.write(layer, last, k, v)
                keys, values = keys[:, first : last + n], values[:, first : last + n]
            else:  # the slots behind the context hold committed tokens
                keys = torch.cat([cache.keys[layer, :, first:last], k], 1)
                values = torch.cat([cache.values[layer, :, first:last], v], 1)
            return F.scaled_dot_product_attention(q, keys[None], values[None], attn_mask=mask)

        for layer in self.fused:
            x = layer(x, cos, sin, attend)
        return rms_norm(x, self.final_norm, self.config.rms_norm_eps).view(batch, width, -1)

    def _same_block(self, batch: int, width: int) -> torch.Tensor | None:
        """Blocks lie side by side behind their context; each sees the context and itself: bool ``[B
        * w, B * w]``, None for a single block.
        """
        if batch == 1:
            return None
        block = torch.arange(batch * width, device=self.embedding.device) // width
        return block[:, None] == block[None]
