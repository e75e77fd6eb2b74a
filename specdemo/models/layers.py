"""What every trained drafter here is made of: its config, decoder layers with gradients, rotary
positions, and the target's own embedding and head.

Tensor names follow transformers' Llama and Qwen3, so that published drafters load by name and
:class:`.decoder.DecoderLayer` can fuse the layers for inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ..errors import UserError, shown
from .compiled import CompiledLayers, compile_layers
from .convolution import GroupedConvolution
from .decoder import DecoderLayer, DecoderShape, WindowCache, rotate, signed_sin
from .linear import Linear

# the types that do not depend on the length of the text, and what each reads
ROPE_TYPES: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        *("factor", "low_freq_factor", "high_freq_factor"),
        "original_max_position_embeddings",
    ),
    "yarn": (
        *("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
        *("original_max_position_embeddings", "truncate"),
    ),
}
Biases = Literal["none", "q, k, v", "q, k, v, o"]


class DrafterConfig(PreTrainedConfig):
    """The fields that all drafters share, as in Llama.

    Args:
        qk_norm: per-head norm of queries and keys before rotation (Qwen3).
        context_window: the most committed tokens before its own that it reads, which is what it was
            trained on; None: all of them.
        biases: which of the attention's projections have any (Qwen2: q, k, v).
        own_embedding, own_head: whether it has these of its own, instead of the target's.
    """

    def __init__(
        self,
        qk_norm: bool,
        hidden_size: int = 576,
        intermediate_size: int = 1536,
        num_hidden_layers: int = 4,
        num_attention_heads: int = 9,
        num_key_value_heads: int = 3,
        head_dim: int | None = None,
        rms_norm_eps: float = 1e-5,
        rope_theta: float | None = None,
        rope_parameters: dict[str, Any] | None = None,
        max_position_embeddings: int = 8192,
        vocab_size: int = 49152,
        context_window: int | None = None,
        biases: Biases = "none",
        own_embedding: bool = False,
        own_head: bool = False,
        **more: Any,
    ) -> None:
        self.context_window = context_window
        self.biases = biases
        self.own_embedding, self.own_head = own_embedding, own_head
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.rms_norm_eps = rms_norm_eps
        self.max_position_embeddings = max_position_embeddings
        self.vocab_size = vocab_size
        self.qk_norm = qk_norm
        self.rope_parameters = {
            "rope_type": "default",
            "rope_theta": rope_theta or 10000.0,
            **(rope_parameters or {}),
        }
        more.setdefault("tie_word_embeddings", False)
        super().__init__(**more)


def linear(n_in: int, n_out: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=bias)


class Attention(nn.Module):
    """Projections of one layer.

    Args:
        own_context: whether the context has K/V projections of its own; else it shares the block's.
    """

    def __init__(self, config: Any, own_context: bool):
        super().__init__()
        size, dim, eps = config.hidden_size, config.head_dim, config.rms_norm_eps
        heads, kv_heads = config.num_attention_heads * dim, config.num_key_value_heads * dim
        self.dim, bias = dim, config.biases != "none"
        self.q_proj = linear(size, heads, bias)
        self.k_proj = linear(size, kv_heads, bias)
        self.v_proj = linear(size, kv_heads, bias)
        self.o_proj = linear(heads, size, config.biases == "q, k, v, o")
        if own_context:
            self.context_k_proj = linear(size, kv_heads)
            self.context_v_proj = linear(size, kv_heads)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(dim, eps)
            self.k_norm = nn.RMSNorm(dim, eps)
        self.own_context, self.qk_norm = own_context, config.qk_norm

    def context_projections(self) -> tuple[nn.Linear, nn.Linear]:
        if self.own_context:
            return self.context_k_proj, self.context_v_proj
        return self.k_proj, self.v_proj

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """``[B, n, heads * D] -> [B, heads, n, D]``"""
        return x.unflatten(-1, (-1, self.dim)).transpose(1, 2)

    def project(
        self, x: torch.Tensor, context: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q of the block rows ``[B, Hq, n, D]``, k and v of context then block ``[B, Hkv, c + n,
        D]``, before rotation.
        """
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if context is not None:
            to_k, to_v = self.context_projections()
            k, v = torch.cat([to_k(context), k], 1), torch.cat([to_v(context), v], 1)
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        if not self.qk_norm:
            return q, k, v
        # in training, products have fewer bits than weights, whose norm then is not fused
        q, k = (x.to(self.q_norm.weight.dtype) for x in (q, k))
        return self.q_norm(q), self.k_norm(k), v


class MLP(nn.Module):
    def __init__(self, size: int, inner: int):
        super().__init__()
        self.gate_proj = linear(size, inner)
        self.up_proj = linear(size, inner)
        self.down_proj = linear(inner, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm residual layer with gradients; :class:`.decoder.DecoderLayer` is its fused form.

    ``attend(layer, q, k, v) -> [B, Hq, n, D]`` decides who sees whom and what is cached.
    """

    def __init__(self, config: Any, index: int, own_context: bool):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.index = index
        self.self_attn = Attention(config, own_context)
        self.mlp = MLP(size, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(size, eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps)
        # DFlash 2
        self.attention_conv: GroupedConvolution | None = None
        self.mlp_conv: GroupedConvolution | None = None
        if taps := getattr(config, "conv_kernel_size", 0):
            self.attention_conv = GroupedConvolution(size, taps, config.conv_group_size)
            self.mlp_conv = GroupedConvolution(size, taps, config.conv_group_size)

    def forward(
        self,
        x: torch.Tensor,
        context: torch.Tensor | None,
        rope: tuple[torch.Tensor, torch.Tensor],
        attend: Callable,
    ) -> torch.Tensor:
        """``x [B, n, H]``, ``context [B, c, H]`` or None, ``rope`` cos and signed sin ``[B or 1, c
        + n, D]``.
        """
        cos, sin = (t[:, None] for t in rope)
        n = x.shape[1]

        def attention(normed: torch.Tensor) -> torch.Tensor:
            q, k, v = self.self_attn.project(normed, context)
            q = rotate(q, cos[..., -n:, :], sin[..., -n:, :])
            out = attend(self, q, rotate(k, cos, sin), v)
            return self.self_attn.o_proj(out.transpose(1, 2).flatten(2))

        x = x + _mixed(self.attention_conv, attention, self.input_layernorm(x))
        return x + _mixed(self.mlp_conv, self.mlp, self.post_attention_layernorm(x))


def _mixed(convolution: GroupedConvolution | None, half: Callable, x: torch.Tensor) -> torch.Tensor:
    """A half of a layer over ``x [B, n, H]``, each of the B a block, between its convolutions."""
    if convolution is None:
        return half(x)
    rows, deltas = convolution.before(x.flatten(0, 1), x.shape[1])
    return convolution.after(half(rows.view_as(x)).flatten(0, 1), deltas, x.shape[1]).view_as(x)


class Rope:
    """cos and signed sin for any positions, for the rope types that do not depend on the length of
    the text.

    Raises:
        UserError: the config asks for another type, or says something that is not read.
    """

    def __init__(self, config: Any):
        parameters = dict(config.rope_parameters)
        kind = parameters.get("rope_type", "default")
        if not isinstance(kind, str) or kind not in ROPE_TYPES:
            raise UserError(
                f"The drafter uses rope type {kind!r}; only {', '.join(ROPE_TYPES)} are supported,"
                " so choose another drafter."
            )
        read = ("rope_type", "rope_theta", *ROPE_TYPES[kind])
        for key, value in parameters.items():
            if (
                key not in read
                and (key, value) != ("partial_rotary_factor", 1)
                and value is not None
            ):
                raise UserError(
                    f"The drafter's rope has “{key}”: {shown(value)}, which SpecDemo does not"
                    f" compute for the type {kind}; choose another drafter."
                )
        shape = LlamaConfig(
            hidden_size=config.num_attention_heads * config.head_dim,
            num_attention_heads=config.num_attention_heads,
            head_dim=config.head_dim,
            rope_parameters=parameters,
            max_position_embeddings=config.max_position_embeddings,
        )
        with torch.device("cpu"):
            table = LlamaRotaryEmbedding(shape)
        self.inverse, self.scaling = table.inv_freq.float(), float(table.attention_scaling)

    def __call__(
        self, positions: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``[..., n] -> cos, signed sin [..., n, D]``"""
        angles = positions[..., None].float() * self.inverse.to(positions.device)
        cos, sin = angles.cos() * self.scaling, angles.sin() * self.scaling
        cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        return cos.to(dtype), signed_sin(sin).to(dtype)


class RopeTable:
    """cos and signed sin ``[n, 1, D]`` of consecutive positions, computed once and grown on
    demand.
    """

    def __init__(self, rope: Rope, device: torch.device, dtype: torch.dtype):
        self.rope, self.device, self.dtype = rope, device, dtype
        self._grow(0)

    def _grow(self, positions: int) -> None:
        # the table outlives the inference mode it may be grown in
        with torch.inference_mode(False), torch.no_grad():
            cos, sin = self.rope(torch.arange(positions, device=self.device), self.dtype)
            self.cos, self.sin = cos[:, None], sin[:, None]

    def reserve(self, positions: int) -> None:
        """Make room for positions 0 to ``positions - 1``."""
        if positions > len(self.cos):
            self._grow(positions)

    def rows(self, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin of positions start..start+n-1."""
        self.reserve(start + n)
        return self.cos[start : start + n], self.sin[start : start + n]


class TargetEmbeddings:
    """The target's embedding and head as first and last layer of a drafter (mixin). They are
    borrowed: never trained, never saved.
    """

    # [Vd] target id of each draft logit, None where they are the same
    vocab_ids: torch.Tensor | None = None
    weights: str = "untrained weights"  # in words, for the page
    borrowed: bool = False  # of another kind than the method asks for
    embedding: torch.Tensor
    compiled: CompiledLayers | None = None  # the fused layers with compiled code, where they can
    cache_class: type[WindowCache] = WindowCache
    kept: torch.Tensor | slice  # the drafter's columns that may be proposed

    # of the PreTrainedModel that this is mixed into
    config: Any
    draft_vocab: torch.Tensor | None
    layers: Any
    norm: nn.RMSNorm
    rope: Rope
    embed_tokens: nn.Embedding
    lm_head: nn.Linear

    def bind(
        self, embedding: torch.Tensor, head: torch.Tensor, known_ids: int | None = None
    ) -> None:
        """Attach the target's ``embedding [V, H]`` and ``head [V, H]``, where the drafter has none
        of its own, and build the fused layers; call again after training changed the weights.

        Args:
            known_ids: ids from this one on are unknown to the tokenizer (rows that pad the target's
                head) and never proposed.
        """
        c, device, dtype = self.config, embedding.device, embedding.dtype
        own_rows = self.embed_tokens.weight if c.own_embedding else embedding
        self.embedding = own_rows.detach().to(device, dtype)
        own_head = self.lm_head.weight.to(device, dtype) if c.own_head else None
        head = head.detach() if own_head is None else own_head.detach()
        rows, ids = min(c.vocab_size, head.shape[0], known_ids or head.shape[0]), self.draft_vocab
        self.vocab_ids, self.kept = None, slice(rows)
        if ids is not None:
            ids = ids.to(device, torch.int64)
            self.kept = ids < (known_ids or ids.max() + 1)
            self.vocab_ids = ids[self.kept]
        if ids is None or c.own_head:
            self.head = Linear(head[self.kept])
        else:
            self.head = Linear(head[self.vocab_ids])
        shape = DecoderShape(
            c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps
        )
        self.fused = [
            DecoderLayer.from_module(layer, i, shape, device, dtype, shared=True)
            for i, layer in enumerate(self.layers)
        ]
        self.final_norm = self.norm.weight.detach().to(embedding)
        mixes = any(layer.attention_conv is not None for layer in self.layers)
        self.compiled = None if mixes else compile_layers(self.fused, self.final_norm)
        self.rope_table = RopeTable(self.rope, device, dtype)
        mask_id = getattr(c, "mask_token_id", None)
        real = ids is None and mask_id is not None and 0 <= mask_id < rows
        self.banned_column = mask_id if real else None

    def new_cache(self, capacity: int) -> WindowCache:
        """An empty cache for ``capacity`` positions, of which it holds the drafter's window; it
        grows where a pass needs more.
        """
        c = self.config
        self.rope_table.reserve(capacity)
        if c.context_window is not None:
            capacity = min(capacity, c.context_window + WindowCache.SPARE)
        return self.cache_class(
            c.num_hidden_layers,
            c.num_key_value_heads,
            capacity,
            c.head_dim,
            self.embedding.dtype,
            self.embedding.device,
            window=c.context_window,
        )

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H] -> [..., Vd]``; the mask's own column is −inf: it is never proposed."""
        out = self.head(hidden)
        if self.banned_column is not None:
            out[..., self.banned_column] = float("-inf")
        return out
