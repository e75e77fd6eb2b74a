"""The diffusion transformer of MDLM (arXiv 2406.07524) and BD3LM (arXiv 2503.09573): layers whose
norms are shifted, scaled and gated by the noise level (adaLN).

The published models are not conditioned on time: their networks always get noise level 0, so all
shifts, scales and gates are constants, worked out once. Norms and the residual stream are float32,
products in the drafter's dtype, as in the published code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .decoder import Attend, rotate, rows_of_heads
from .linear import Linear

Weights = Callable[[str], torch.Tensor]  # the tensor of that name


def condition(take: Weights) -> torch.Tensor:
    """The conditioning vector ``[cond]`` at noise level 0: silu of the time embedding's MLP over
    cosines and sines of 0.
    """
    first, out = "backbone.sigma_map.mlp.0.", "backbone.sigma_map.mlp.2."
    inner = take(first + "weight").float()
    half = inner.shape[1] // 2
    waves = torch.cat([torch.ones(half), torch.zeros(inner.shape[1] - half)]).to(inner.device)
    hidden = F.silu(F.linear(waves, inner, take(first + "bias").float()))
    return F.silu(F.linear(hidden, take(out + "weight").float(), take(out + "bias").float()))


@dataclass(frozen=True)
class ModulatedNorm:
    """A layer norm without bias, in float32, whose output is scaled and shifted."""

    weight: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        normed = F.layer_norm(x.float(), (x.shape[-1],)) * self.weight
        return normed * (1 + self.scale) + self.shift


@dataclass(frozen=True)
class DiTLayer:
    """One layer without gradients; see the module."""

    index: int
    heads: int
    attention_norm: ModulatedNorm
    qkv: Linear
    out: Linear
    attention_gate: torch.Tensor
    mlp_norm: ModulatedNorm
    up: Linear
    up_bias: torch.Tensor
    down: Linear
    down_bias: torch.Tensor
    mlp_gate: torch.Tensor

    @classmethod
    def load(
        cls, take: Weights, index: int, heads: int, c: torch.Tensor, dtype: torch.dtype
    ) -> DiTLayer:
        """The layer of that index from a checkpoint of the published layout; ``c`` is
        :func:`condition`.
        """
        name = f"backbone.blocks.{index}."

        def product(part: str) -> Linear:
            return Linear(take(f"{name}{part}.weight"), c.device, dtype)

        def bias(part: str) -> torch.Tensor:
            return take(f"{name}{part}.bias").to(dtype)

        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation(take, name, c).chunk(6)
        return cls(
            index,
            heads,
            ModulatedNorm(take(f"{name}norm1.weight").float(), shift, scale),
            product("attn_qkv"),
            product("attn_out"),
            gate,
            ModulatedNorm(take(f"{name}norm2.weight").float(), mlp_shift, mlp_scale),
            product("mlp.0"),
            bias("mlp.0"),
            product("mlp.2"),
            bias("mlp.2"),
            mlp_gate,
        )

    def __call__(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """``x [n, H] -> [n, H]`` float32; ``cos``, signed ``sin``: ``[n, 1, D]``."""
        n, dtype = x.shape[0], self.qkv.dtype
        qkv = self.qkv(self.attention_norm(x).to(dtype)).view(n, 3, self.heads, -1)
        q, k = (rotate(t, cos, sin).transpose(0, 1) for t in (qkv[:, 0], qkv[:, 1]))
        attended = attend(self.index, q[None], k, qkv[:, 2].transpose(0, 1))
        x = x + self.attention_gate * self.out(rows_of_heads(attended, n))
        inner = self.up(self.mlp_norm(x).to(dtype)) + self.up_bias
        return x + self.mlp_gate * (self.down(F.gelu(inner, approximate="tanh")) + self.down_bias)


def modulation(take: Weights, name: str, c: torch.Tensor) -> torch.Tensor:
    """The shifts, scales and gates of the part ``name``, side by side."""
    part = f"{name}adaLN_modulation."
    return F.linear(c, take(part + "weight").float(), take(part + "bias").float())


def final_norm(take: Weights, c: torch.Tensor) -> ModulatedNorm:
    """The norm before the head."""
    shift, scale = modulation(take, "backbone.output_layer.", c).chunk(2)
    return ModulatedNorm(take("backbone.output_layer.norm_final.weight").float(), shift, scale)
