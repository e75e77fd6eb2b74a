"""The shape of a block drafter."""

from __future__ import annotations

from typing import Any, Literal

from .layers import DrafterConfig
from .sight import WindowFrom


class BlockDrafterConfig(DrafterConfig):
    """Shape of a block drafter.

    Args:
        block_size: slots of a block, anchor included.
        context: what it reads before its anchor: features of the ``target``, or the ``text``
            itself (:mod:`.text_drafter`).
        target_layer_ids: decoder layers of the target whose *outputs* are the features
            (``hidden_states[i + 1]``); -1 stands for its embeddings. None where it reads the text.
        mask_token_id: a real row of the target's embedding that is never emitted; it stands for the
            mask in transformers' contract.
        context_projection: ``own`` (K/V projections for the context alone) or ``shared`` (DFlash).
        mask_embedding: ``learned`` (a vector of the drafter's) or ``token`` (the embedding row of
            ``mask_token_id``).
        markov_rank: inner width of the Markov head (:mod:`.markov`), 0 for a drafter without one.
        row_offset: 0, or 1 where row k of the network speaks about the position behind slot k, so
            that the anchor's row predicts and the last mask is left out (DeepSpec).
        layer_types, sliding_window, window_from, causal: see :mod:`.sight`; ``causal`` by layer.
        input_embedding_scale, output_multiplier, final_logit_softcapping: factors on the block's
            embeddings and its logits, and the bound of these.
        conv_kernel_size, conv_group_size: see :mod:`.convolution`; 0: none.
        pair_rank, pair_gate, confidence, selector_rank, selector_top_k: heads of
            :mod:`.pair_heads`; ranks of 0: none.
        draft_vocab_size: columns of its own head, and of a head on pairs, where they are fewer
            than the vocabulary's.
    """

    model_type = "specdemo_block_drafter"

    def __init__(
        self,
        num_hidden_layers: int = 4,
        block_size: int | None = None,
        num_target_layers: int | None = None,
        context: Literal["target", "text"] = "target",
        target_layer_ids: list[int] | None = None,
        mask_token_id: int | None = None,
        qk_norm: bool = True,
        context_projection: Literal["own", "shared"] = "shared",
        mask_embedding: Literal["learned", "token"] = "token",
        layer_types: list[str] | None = None,
        rope_parameters: dict[str, Any] | None = None,
        markov_rank: int = 0,
        row_offset: int = 0,
        causal: list[bool] | None = None,
        sliding_window: int | None = None,
        window_from: WindowFrom = "row",
        input_embedding_scale: float = 1.0,
        output_multiplier: float = 1.0,
        final_logit_softcapping: float | None = None,
        conv_kernel_size: int = 0,
        conv_group_size: int = 16,
        pair_rank: int = 0,
        pair_gate: bool = False,
        confidence: Literal["none", "state", "state and token"] = "none",
        selector_rank: int = 0,
        selector_top_k: int = 16,
        draft_vocab_size: int | None = None,
        **more: Any,
    ) -> None:
        self.block_size = 16 if block_size is None else block_size
        self.mask_token_id, self.num_target_layers = mask_token_id, num_target_layers
        self.context, self.target_layer_ids = context, list(target_layer_ids or ())
        self.context_projection = context_projection
        self.mask_embedding = mask_embedding
        self.layer_types = layer_types or ["full_attention"] * num_hidden_layers
        self.causal = causal or [False] * num_hidden_layers
        self.markov_rank, self.row_offset = markov_rank, row_offset
        self.sliding_window, self.window_from = sliding_window, window_from
        self.input_embedding_scale = input_embedding_scale
        self.output_multiplier = output_multiplier
        self.final_logit_softcapping = final_logit_softcapping
        self.conv_kernel_size, self.conv_group_size = conv_kernel_size, conv_group_size
        self.pair_rank, self.pair_gate, self.confidence = pair_rank, pair_gate, confidence
        self.selector_rank, self.selector_top_k = selector_rank, selector_top_k
        self.draft_vocab_size = draft_vocab_size
        super().__init__(
            num_hidden_layers=num_hidden_layers,
            qk_norm=qk_norm,
            rope_parameters=rope_parameters,
            **more,
        )
