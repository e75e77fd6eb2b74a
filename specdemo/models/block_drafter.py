"""The block drafter: one network that fills all masks of a block in one pass, conditioned on the
target's hidden states.

Architecture of DFlash (Chen, Liang, Liu, 2026, section 4): features of several target layers are
fused once per committed token and enter *every* layer as keys and values; the block's rows see each
other in both directions and all context strictly before their anchor. Slot k of a block predicts
the token at position anchor + k (no shift); slot 0 is the anchor itself. Its published relatives
(:mod:`.layouts`) differ in who sees whom (:mod:`.sight`), in which row predicts which position, by
convolutions and by heads on top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from .block_config import BlockDrafterConfig
from .compiled import MAX_ROWS
from .decoder import CHUNK_ROWS, ROW_STEP, Attend, WindowCache, rms_norm, rotate, whole_steps
from .layers import Layer, Rope, TargetEmbeddings, linear
from .linear import Linear
from .markov import MarkovHead, MarkovTables
from .pair_heads import (
    CandidateSelector,
    Confidence,
    DsparkPairs,
    MarkovPairs,
    PairHead,
    SelectorPairs,
)
from .reads import Reads, hide
from .sight import FULL, Masks, Sight, block_mask, sights, whole_mask

MASK = -1  # the id of a masked slot in the blocks given to :meth:`BlockDrafter.hidden`


class BlockDrafter(TargetEmbeddings, PreTrainedModel):
    """See the module. Two ways in: :meth:`forward` is transformers' DFlash contract with gradients;
    :meth:`extend` and :meth:`hidden` are the fast path of every diffusion method here. Both give
    the same numbers.
    """

    config_class = BlockDrafterConfig
    # heads in use, where the drafter has one: ours, or a published one
    markov_tables: MarkovTables | None = None
    pair_head: PairHead | None = None
    reads_text = False  # whether it reads tokens, not the target's states (:mod:`.text_drafter`)
    main_input_name = "noise_embeds"
    base_model_prefix = "model"

    def __init__(self, config: BlockDrafterConfig, draft_vocab: torch.Tensor | None = None):
        super().__init__(config)
        size, eps = config.hidden_size, config.rms_norm_eps
        self._add_context(config)
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
        self._add_published_parts(config)
        self.rope, self.sights = Rope(config), sights(config)
        self.post_init()

    def _add_context(self, c: BlockDrafterConfig) -> None:
        """What fuses the target's features."""
        self.fc = linear(len(c.target_layer_ids) * c.hidden_size, c.hidden_size)
        self.hidden_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def _add_published_parts(self, c: BlockDrafterConfig) -> None:
        """Heads of published drafters, and embedding and head where they have their own."""
        columns = c.draft_vocab_size or c.vocab_size
        if c.own_embedding:
            self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        if c.own_head:
            self.lm_head = linear(c.hidden_size, columns)
        if c.pair_rank:
            self.markov_head = MarkovPairs(
                c.hidden_size, c.vocab_size, columns, c.pair_rank, c.pair_gate
            )
        if c.confidence != "none":
            rank = c.pair_rank if c.confidence == "state and token" else 0
            self.confidence_head = Confidence(c.hidden_size, rank)
        if c.selector_rank:
            self.candidate_selector = CandidateSelector(
                c.hidden_size, c.vocab_size, c.selector_rank
            )

    @property
    def block_size(self) -> int:
        return self.config.block_size

    @property
    def most_masks(self) -> int:
        """Positions that one block predicts."""
        return self.config.block_size - 1 + self.config.row_offset

    @property
    def is_plain(self) -> bool:
        """Whether it is a DFlash block as our trainer and transformers know it: slot k speaks
        about position k, rows see their whole block and all context, nothing is mixed or scaled,
        and no published head or embedding is its own.
        """
        c = self.config
        extras = (c.row_offset, c.conv_kernel_size, c.pair_rank, c.selector_rank)
        scaled = (c.input_embedding_scale, c.output_multiplier) != (1, 1)
        own = c.own_embedding or c.own_head or c.final_logit_softcapping is not None
        return {*sights(c)} == {FULL} and not (any(extras) or scaled or own)

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
        given = None if attention_mask is None else attention_mask[:, None, None, :].bool()

        def attend(layer: Layer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if cache is not None:
                k, v = cache.update(k, v, layer.index)
            allowed, sight = given, self.sights[layer.index]
            if sight != FULL:
                relative = torch.arange(k.shape[2], device=k.device) - (k.shape[2] - n)
                seen = sight.sees(relative, n)
                allowed = seen if given is None else seen & given
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)

        hidden = self.denoise(rows, context, position_ids, attend)
        # every supported version of transformers takes the older name of the cache
        return BaseModelOutputWithPast(hidden, past_key_values=cache)  # type: ignore[call-arg]

    # -- without gradients: the fast path ----------------------------------------------------------

    def bind(
        self, embedding: torch.Tensor, head: torch.Tensor, known_ids: int | None = None
    ) -> None:
        super().bind(embedding, head, known_ids)
        device = embedding.device
        rows = min(self.config.vocab_size, head.shape[0], known_ids or head.shape[0])
        self._bind_context()
        mask_row = (
            self.embed(torch.tensor(self.config.mask_token_id, device=device))
            if self.mask_embedding is None
            else self.mask_embedding
        )
        self.mask_row = mask_row.detach().to(embedding)
        self.sights = sights(self.config)
        self.pair_head = self._pair_head()
        self.markov_tables = None
        if self.markov is not None:
            ids = slice(rows) if self.vocab_ids is None else self.vocab_ids
            self.markov_tables = MarkovTables(self.markov, self.embedding[ids], head.detach()[ids])

    def _bind_context(self) -> None:
        place = self.embedding.device, self.embedding.dtype
        self.fused_fc = Linear(self.fc.weight, *place)
        self.context_norm = self.hidden_norm.weight.detach().to(self.embedding)
        to_context = [p for l in self.layers for p in l.self_attn.context_projections()]
        self.to_context = Linear(torch.cat([p.weight.detach() for p in to_context]), *place)
        self.context_bias = None
        if to_context[0].bias is not None:
            self.context_bias = torch.cat([p.bias.detach() for p in to_context]).to(self.embedding)

    def _pair_head(self) -> PairHead | None:
        c = self.config
        if c.pair_rank:
            confidence = None if c.confidence == "none" else self.confidence_head
            with_token = c.confidence == "state and token"
            return DsparkPairs(self.markov_head, confidence, with_token, self.embedding, self.kept)
        if c.selector_rank:
            return SelectorPairs(self.candidate_selector, c.selector_top_k, self.embedding)
        return None

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """``[...]`` token ids to ``[..., H]`` rows of a block."""
        rows = F.embedding(ids, self.embedding)
        scale = self.config.input_embedding_scale
        return rows if scale == 1 else rows * scale

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        c, out = self.config, super().logits(hidden)
        if c.output_multiplier != 1:
            out = out * c.output_multiplier
        if cap := c.final_logit_softcapping:
            out = torch.where(out.isneginf(), out, torch.tanh(out / cap) * cap)
        return out

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
        if self.context_bias is not None:
            rows = rows + self.context_bias
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
        if not self.config.row_offset:
            return self._rows(ids, anchor_position, cache)
        if ids.shape[1] == 1:  # the anchor alone: nothing is predicted
            return self.embedding.new_zeros(len(ids), 1, self.embedding.shape[1])
        return F.pad(self._rows(ids[:, :-1], anchor_position, cache), (0, 0, 1, 0))

    def _rows(self, ids: torch.Tensor, anchor_position: int, cache: WindowCache) -> torch.Tensor:
        """The network's own rows ``[B, w, H]`` of :meth:`hidden`."""
        batch, width = ids.shape
        n = batch * width
        first, last = cache.seen(anchor_position)
        cache.reserve(cache.length + n)
        masks = self._masks(first, last, anchor_position - cache.start, batch, width)
        ids = ids.reshape(-1)
        x = torch.where((ids == MASK)[:, None], self.mask_row, self.embed(ids.clamp(min=0)))
        cos, sin = (t.repeat(batch, 1, 1) for t in self.rope_table.rows(anchor_position, width))
        group = self.config.num_attention_heads // self.config.num_key_value_heads
        of_context, of_block = masks[0]
        alike = of_context is None and all(m is masks[0] for m in masks)
        if self.compiled is not None and alike and last == cache.length and n <= MAX_ROWS:
            hidden = None if of_block is None else hide(of_block, group)
            reads = Reads(first, last, last + n, hidden)
            return self.compiled(x, cos, sin, cache, last, reads)[0].view(batch, width, -1)
        whole = {id(m): whole_mask(m, last - first, n, group) for m in masks}

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if last == cache.length:
                keys, values = cache.write(layer, last, k, v)
                keys, values = keys[:, first : last + n], values[:, first : last + n]
            else:  # the slots behind the context hold committed tokens
                keys = torch.cat([cache.keys[layer, :, first:last], k], 1)
                values = torch.cat([cache.values[layer, :, first:last], v], 1)
            mask = whole[id(masks[layer])]  # [G * B * w, context + B * w]
            return F.scaled_dot_product_attention(q, keys[None], values[None], attn_mask=mask)

        return self.run_layers(x, cos, sin, attend, width).view(batch, width, -1)

    def run_layers(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend, width: int
    ) -> torch.Tensor:
        """Rows ``[n, H]`` of blocks of ``width`` slots side by side through the layers and the
        final norm.
        """
        eps = self.config.rms_norm_eps
        for layer, own in zip(self.fused, self.layers, strict=True):
            if own.attention_conv is None:
                x = layer(x, cos, sin, attend)
                continue
            rows, deltas = own.attention_conv.before(rms_norm(x, layer.attention_norm, eps), width)
            added = layer.attention(rows, cos, sin, attend)
            x = x + own.attention_conv.after(added, deltas, width)
            rows, deltas = own.mlp_conv.before(rms_norm(x, layer.mlp_norm, eps), width)
            x = x + own.mlp_conv.after(layer.mlp(rows), deltas, width)
        return rms_norm(x, self.final_norm, eps)

    def _masks(self, first: int, last: int, anchor: int, batch: int, width: int) -> list[Masks]:
        """Per layer what its rows see of the slots from ``first`` to ``last`` and of the blocks;
        layers that see the same have the same object.
        """
        device = self.embedding.device
        known: dict[Sight, Masks] = {}
        for sight in dict.fromkeys(self.sights):
            context = torch.arange(first - anchor, last - anchor)
            known[sight] = Masks(
                *(
                    m if m is None else m.to(device)
                    for m in block_mask(sight, context, batch, width)
                )
            )
        return [known[sight] for sight in self.sights]
