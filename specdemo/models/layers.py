"""What every trained drafter here is made of: decoder layers, rotary positions, and the target's
own embedding and head.

Each layer exists twice: as modules with gradients (training, transformers' contract) and fused for
inference (``FusedLayer``).
Tensor names follow transformers' Llama and Qwen3, so that published drafters load by name.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ..errors import UserError
from .linear import Linear

MASK = -1  # the id that marks a masked slot in the ids given to a drafter
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def linear(n_in: int, n_out: int) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=False)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class Attention(nn.Module):
    """Projections of one layer. ``own_context``: the context has K/V projections of its own (else
    it shares the block's).
    """

    def __init__(self, config: PreTrainedConfig, own_context: bool):
        super().__init__()
        size, dim = config.hidden_size, config.head_dim
        heads, kv = config.num_attention_heads * dim, config.num_key_value_heads * dim
        self.dim = dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            linear(size, heads),
            linear(size, kv),
            linear(size, kv),
            linear(heads, size),
        )
        if own_context:
            self.context_k_proj, self.context_v_proj = linear(size, kv), linear(size, kv)
        if config.qk_norm:
            self.q_norm, self.k_norm = (
                RMSNorm(dim, config.rms_norm_eps),
                RMSNorm(dim, config.rms_norm_eps),
            )
        self.own_context, self.qk_norm = own_context, config.qk_norm

    def context_projections(self) -> tuple[nn.Linear, nn.Linear]:
        return (
            (self.context_k_proj, self.context_v_proj)
            if self.own_context
            else (self.k_proj, self.v_proj)
        )

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
        return (self.q_norm(q), self.k_norm(k), v) if self.qk_norm else (q, k, v)


class MLP(nn.Module):
    def __init__(self, size: int, inner: int):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            linear(size, inner),
            linear(size, inner),
            linear(inner, size),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm residual layer. ``attend(layer, q, k, v) -> [B, Hq, n, D]`` decides who sees whom
    and what is cached.
    """

    def __init__(self, config: PreTrainedConfig, index: int, own_context: bool):
        super().__init__()
        self.index = index
        self.self_attn, self.mlp = (
            Attention(config, own_context),
            MLP(config.hidden_size, config.intermediate_size),
        )
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        x: torch.Tensor,
        context: torch.Tensor | None,
        rope: tuple[torch.Tensor, torch.Tensor],
        attend: Callable,
    ) -> torch.Tensor:
        """``x [B, n, H]``, ``context [B, c, H]`` or None, ``rope`` cos and sin ``[B or 1, c + n,
        D]``.
        """
        q, k, v = self.self_attn.project(self.input_layernorm(x), context)
        cos, sin = (t[:, None] for t in rope)
        n = x.shape[1]
        out = attend(self, rotate(q, cos[..., -n:, :], sin[..., -n:, :]), rotate(k, cos, sin), v)
        x = x + self.self_attn.o_proj(out.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions; ``sin`` carries the sign of the half it multiplies (see :class:`Rope`)."""
    return x * cos + torch.roll(x, x.shape[-1] // 2, -1) * sin


class Rope:
    """cos and signed sin for any positions, for the rope types that do not depend on the length of
    the text.
    """

    def __init__(self, config: PreTrainedConfig):
        parameters = dict(config.rope_parameters)
        if parameters.get("rope_type", "default") not in ROPE_TYPES:
            raise UserError(
                f"The drafter uses rope type {parameters['rope_type']!r}; only"
                f" {', '.join(ROPE_TYPES)} are supported, so choose another drafter."
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
        """``[..., n] -> cos, sin [..., n, D]``"""
        angles = positions[..., None].float() * self.inverse.to(positions.device)
        cos, sin = angles.cos() * self.scaling, angles.sin() * self.scaling
        return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def fuse(*parts: nn.Linear) -> torch.Tensor:
    """One ``[sum out, in]`` weight; the modules keep working as views of it, so nothing is stored
    twice.
    """
    weight = torch.cat([p.weight.detach() for p in parts])
    for part, piece in zip(parts, weight.split([p.out_features for p in parts]), strict=True):
        part.weight.data = piece
    return weight


class FusedLayer:
    """A :class:`Layer` for inference: q, k and v in one product, gate and up in one, keys written
    into a static buffer.
    """

    def __init__(
        self, layer: Layer, config: PreTrainedConfig, device: torch.device, dtype: torch.dtype
    ):
        attention, mlp = layer.self_attn, layer.mlp

        def place(weight: torch.Tensor) -> Linear:
            return Linear(weight, device, dtype)

        self.qkv, self.o = (
            place(fuse(attention.q_proj, attention.k_proj, attention.v_proj)),
            place(attention.o_proj.weight),
        )
        self.gate_up, self.down = (
            place(fuse(mlp.gate_proj, mlp.up_proj)),
            place(mlp.down_proj.weight),
        )
        self.norms = [
            n.weight.detach().to(device, dtype)
            for n in (layer.input_layernorm, layer.post_attention_layernorm)
        ]
        self.qk = (
            [n.weight.detach().to(device, dtype) for n in (attention.q_norm, attention.k_norm)]
            if config.qk_norm
            else None
        )
        self.heads, self.kv, self.dim, self.eps = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.rms_norm_eps,
        )

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, self.eps)

    def __call__(
        self,
        x: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        remember: Callable,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """``x [n, H] -> [n, H]``.

        ``rope``: cos and sin ``[n, 1, D]``. ``remember(k, v)`` takes this layer's new ``[Hkv, n,
        D]`` and returns all keys and
        values to look at ``[Hkv, S, D]``. ``mask``: bool ``[n, S]``, true where a row may look, or
        None for everywhere.
        """
        n, group = x.shape[0], self.heads // self.kv
        rows = self.qkv(self.norm(x, self.norms[0])).view(n, self.heads + 2 * self.kv, self.dim)
        qk, v = rows[:, : self.heads + self.kv], rows[:, self.heads + self.kv :]
        if self.qk:
            qk = torch.cat(
                [
                    self.norm(qk[:, : self.heads], self.qk[0]),
                    self.norm(qk[:, self.heads :], self.qk[1]),
                ],
                1,
            )
        qk = rotate(qk, *rope)
        keys, values = remember(qk[:, self.heads :].transpose(0, 1), v.transpose(0, 1))
        # query heads that share a key head become rows
        q = qk[:, : self.heads].transpose(0, 1).reshape(1, self.kv, group * n, self.dim)
        out = F.scaled_dot_product_attention(
            q, keys[None], values[None], attn_mask=None if mask is None else mask.repeat(group, 1)
        )
        x = x + self.o(out.view(self.kv, group, n, self.dim).permute(2, 0, 1, 3).reshape(n, -1))
        gate, up = self.gate_up(self.norm(x, self.norms[1])).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class KeyValues:
    """Static K/V buffers of a drafter. Slot = absolute position; ``length`` slots hold committed
    tokens and may be set back.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        rope: Rope,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.shape = (config.num_hidden_layers, config.num_key_value_heads)
        self.dim, self.rope, self.length, self.capacity = config.head_dim, rope, 0, 0
        self.k = self.v = torch.empty(*self.shape, 0, self.dim, device=device, dtype=dtype)
        self.reserve(capacity)

    def reserve(self, slots: int) -> None:
        """Make room for ``slots`` positions; what is stored stays."""
        if slots <= self.capacity:
            return
        grown = [self.k.new_zeros(*self.shape, slots, self.dim) for _ in range(2)]
        for new, old in zip(grown, (self.k, self.v), strict=True):
            new[:, :, : self.capacity] = old
        (self.k, self.v), self.capacity = grown, slots
        self.cos, self.sin = (
            t[:, None] for t in self.rope(torch.arange(slots, device=self.k.device), self.k.dtype)
        )

    def at(self, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin ``[n, 1, D]`` of positions start..start+n-1."""
        return self.cos[start : start + n], self.sin[start : start + n]


class FrozenEnds:
    """The target's embedding and head as the two ends of a drafter (mixin). They are borrowed:
    never trained, never saved.
    """

    # [Vd] target id of each draft logit, None where they are the same
    vocab_ids: torch.Tensor | None = None
    weights: str = "untrained weights"  # in words, for the page
    embedding: torch.Tensor | None = None

    def bind(self, embedding: torch.Tensor, head: torch.Tensor) -> None:
        """Attach the target's ``embedding [V, H]`` and ``head [V, H]`` and build the fused layers;
        call again after training changed the weights.
        """
        self.embedding = embedding.detach()
        ids, rows = getattr(self, "draft_vocab", None), min(self.config.vocab_size, head.shape[0])
        self.vocab_ids = None if ids is None else ids.to(head.device, torch.int64)
        self.head = Linear(head.detach()[:rows] if ids is None else head.detach()[self.vocab_ids])
        self.fused = [
            FusedLayer(layer, self.config, embedding.device, embedding.dtype)
            for layer in self.layers
        ]
        self.last_norm = self.norm.weight.detach().to(embedding)
        mask_id = getattr(self.config, "mask_token_id", None)
        self.never = (
            mask_id if ids is None and mask_id is not None and 0 <= mask_id < rows else None
        )

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., H] -> [..., Vd]``; the mask's own row can never win."""
        out = self.head(hidden)
        if self.never is not None:
            out[..., self.never] = float("-inf")
        return out
