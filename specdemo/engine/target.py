"""The target: one decoding step of a Llama-type model on a static cache, for any tree of tokens.

A step reads ``w`` rows (anchor, then candidate nodes, then padding) at once. Row i sees the
committed context and its own ancestors only, sits at position ``length + depth`` and writes its
keys and values to slot ``length + i``. Committing a path moves its rows together; rolling back is a
smaller ``length``, because rows past it are masked and overwritten. Weights come from the loaded
Hugging Face model, fused (q, k, v in one product; gate and up in one) and packed by
``models.linear``; ``check_against`` refuses a model whose step does not agree with Hugging Face's
own forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..errors import UserError
from ..models.linear import Linear
from .attention import KINDS, LayoutInvariantAttention

BUCKETS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def bucket(slots: int) -> int:
    """The smallest static cache size that holds ``slots``."""
    for size in BUCKETS:
        if slots <= size:
            return size
    raise UserError(
        f"Prompt and answer need {slots} cache slots and the largest cache has {BUCKETS[-1]};"
        " shorten the prompt or ask for fewer tokens."
    )


class Cache:
    """Static keys and values ``[layers, kv_heads, slots, head_dim]`` of one sequence, and how many
    slots are committed.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        slots: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.keys = torch.zeros(layers, kv_heads, slots, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.slots = slots
        self.length = 0

    def commit(self, nodes: list[int]) -> None:
        """Keep the anchor's row and the rows of ``nodes`` (indices into the draft, parents first)
        of the last step; forget the rest.
        """
        first = self.length + 1
        if nodes != list(range(len(nodes))):
            source = torch.tensor([first + node for node in nodes], device=self.keys.device)
            self.keys[:, :, first : first + len(nodes)] = self.keys[:, :, source]
            self.values[:, :, first : first + len(nodes)] = self.values[:, :, source]
        self.length = first + len(nodes)

    def rollback(self, length: int) -> None:
        """Forget everything from slot ``length`` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: {self.length} slots are committed")
        self.length = length


@dataclass
class Layer:
    norm_in: torch.Tensor
    qkv: Linear
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Linear
    norm_mlp: torch.Tensor
    gate_up: Linear
    down: Linear


class Target:
    """A decoder of the Llama family (Llama, Mistral without window, Qwen2, Qwen3, SmolLM) ready to
    verify.

    Args:
        model: a loaded Hugging Face causal LM, in the dtype and on the device to run with.
        max_positions: longest sequence; the rotary table is built for it.
    """

    def __init__(self, model: torch.nn.Module, max_positions: int | None = None):
        config = model.config
        self.config, self.device, self.dtype = config, model.device, model.dtype
        self.heads = config.num_attention_heads
        self.kv_heads = getattr(config, "num_key_value_heads", None) or self.heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.max_positions = min(max_positions or 1 << 30, config.max_position_embeddings)
        try:
            base = model.model
            self.layers = [self._layer(layer) for layer in base.layers]
            self.embedding = base.embed_tokens.weight.detach()
            self.head_weight = model.lm_head.weight.detach()
            self.final_norm = base.norm.weight.detach()
            rotary = base.rotary_emb
        except AttributeError as error:
            raise UserError(
                f"Targets of type “{config.model_type}” are not supported yet ({error}); choose a"
                " Llama, Mistral, Qwen2 or Qwen3 type model."
            ) from None
        self.head = self._linear(self.head_weight)
        self.vocab_size = self.head_weight.shape[0]
        self._rotary(rotary)

    def _linear(self, weight: torch.Tensor) -> Linear:
        return Linear(weight.detach(), self.device, self.dtype)

    def _layer(self, layer: torch.nn.Module) -> Layer:
        a, mlp = layer.self_attn, layer.mlp
        parts = (a.q_proj, a.k_proj, a.v_proj)
        biases = [p.bias for p in parts]
        if any(x is not None for x in (a.o_proj.bias, mlp.gate_proj.bias, mlp.down_proj.bias)):
            raise AttributeError("biases outside q, k, v")
        weight = lambda module: None if module is None else module.weight.detach()  # noqa: E731
        return Layer(
            layer.input_layernorm.weight.detach(),
            self._linear(torch.cat([p.weight for p in parts])),
            None if biases[0] is None else torch.cat(biases).detach(),
            weight(getattr(a, "q_norm", None)),
            weight(getattr(a, "k_norm", None)),
            self._linear(a.o_proj.weight),
            layer.post_attention_layernorm.weight.detach(),
            self._linear(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])),
            self._linear(mlp.down_proj.weight),
        )

    def _rotary(self, rotary: torch.nn.Module) -> None:
        kind = getattr(rotary, "rope_type", "default")
        if kind in ("dynamic", "longrope"):
            raise UserError(
                "This target changes its positions with the length of the text (rope type"
                f" “{kind}”), which a static cache cannot follow; choose another target."
            )
        positions = torch.arange(self.max_positions, device=self.device)[None]
        # [1, P, D]
        cos, sin = rotary(torch.zeros(1, 1, dtype=self.dtype, device=self.device), positions)
        half = self.head_dim // 2
        self.cos = cos[0].to(self.dtype).contiguous()
        # the sign of rotate_half folded in
        self.sin = torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1).to(self.dtype).contiguous()

    def new_cache(self, slots: int) -> Cache:
        """An empty cache whose size is the next bucket."""
        return Cache(
            len(self.layers), self.kv_heads, bucket(slots), self.head_dim, self.dtype, self.device
        )

    # -- one step ----------------------------------------------------------------------------------

    def prefill(
        self, cache: Cache, ids: list[int], taps: tuple[int, ...] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Commit ``ids`` after the cache's content (prefill) and return the last row's logits ``[1,
        V]`` and taps ``[n, len(taps) * H]``.
        """
        n = len(ids)
        seen = torch.ones(n, n, dtype=torch.bool, device=self.device).tril_()
        hidden, features = self._forward(
            cache, self._ids(ids), torch.arange(cache.length, cache.length + n), seen, taps
        )
        cache.length += n
        return self.head(hidden[-1:]), features

    def verify(
        self,
        cache: Cache,
        anchor: int,
        tokens: list[int],
        parent: list[int],
        width: int,
        taps: tuple[int, ...] = (),
        attention: str = "layout_invariant",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits ``[n + 1, V]`` after the anchor and after each of the ``n`` nodes, and their taps,
        from one pass of ``width`` rows.

        Nothing is committed. ``parent`` uses -1 for the anchor. Rows past ``n`` are padding: they
        write to slots past every live row and no live row sees them. ``attention`` is one of
        ``attention.KINDS``: ``layout_invariant`` gives a tree's rows the very bits of plain decoding,
        ``masked`` is the fastest for one row, ``cascade`` is D²SD's.
        """
        n = len(tokens)
        if n + 1 > width or cache.length + width > cache.slots:
            raise ValueError(
                f"{n} nodes, width {width}, {cache.length} of {cache.slots} slots used"
            )
        depth = [0] * width
        seen = torch.eye(width, dtype=torch.bool)
        seen[: n + 1, 0] = True
        for node, above in enumerate(parent):
            depth[node + 1] = depth[above + 1] + 1
            if above >= 0:
                seen[node + 1] |= seen[above + 1]
        if max(depth) > LayoutInvariantAttention.NEAR:
            raise ValueError(
                f"a draft of depth {max(depth)}; at most {LayoutInvariantAttention.NEAR} is exact"
            )
        ids = self._ids([anchor, *tokens] + [anchor] * (width - n - 1))
        positions = torch.tensor(depth).add_(cache.length).clamp_(max=self.max_positions - 1)
        hidden, features = self._forward(
            cache, ids, positions, seen.to(self.device), taps, attention
        )
        return self.head(hidden)[: n + 1], None if features is None else features[: n + 1]

    def _ids(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def _forward(
        self,
        cache: Cache,
        ids: torch.Tensor,
        positions: torch.Tensor,
        seen: torch.Tensor,
        taps: tuple[int, ...],
        attention: str = "masked",
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden rows ``[w, H]`` after the final norm; ``seen [w, w]`` says which rows of this pass
        each row attends to, ``positions [w]`` lies on the host.
        """
        w = len(ids)
        attend = KINDS[attention](
            seen, cache.length, cache.slots, self.heads // self.kv_heads, self.dtype, positions
        )
        slots, positions = (
            torch.arange(cache.length, cache.length + w, device=self.device),
            positions.to(self.device),
        )
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        x, kept = self.embedding[ids], {}
        for index, layer in enumerate(self.layers):
            x = x + self._attend(
                layer,
                cache.keys[index],
                cache.values[index],
                self._norm(x, layer.norm_in),
                cos,
                sin,
                slots,
                attend,
            )
            gate, up = layer.gate_up(self._norm(x, layer.norm_mlp)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
            if index in taps:
                kept[index] = x
        features = torch.cat([kept[i] for i in taps], -1) if taps else None
        return self._norm(x, self.final_norm), features

    def _attend(self, layer: Layer, keys, values, x, cos, sin, slots, attend) -> torch.Tensor:
        w, h, g, d = len(x), self.heads, self.kv_heads, self.head_dim
        qkv = layer.qkv(x)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        qkv = qkv.view(w, h + 2 * g, d)
        qk = qkv[:, : h + g]
        if layer.q_norm is not None:
            qk = torch.cat(
                (self._norm(qk[:, :h], layer.q_norm), self._norm(qk[:, h:], layer.k_norm)), 1
            )
        qk = qk * cos + torch.roll(qk, d // 2, -1) * sin
        keys.index_copy_(1, slots, qk[:, h:].transpose(0, 1))
        values.index_copy_(1, slots, qkv[:, h + g :].transpose(0, 1))
        q = qk[:, :h].transpose(0, 1).reshape(1, g, h // g * w, d)
        out = attend(q, keys[None], values[None])
        return layer.out(out.view(g, h // g, w, d).permute(2, 0, 1, 3).reshape(w, h * d))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    # -- trust -------------------------------------------------------------------------------------

    @torch.no_grad()
    def check_against(self, model: torch.nn.Module) -> float:
        """Largest difference to the model's own forward pass on a few tokens, relative to the
        spread of its logits; refuses above 10 %.
        """
        ids = [(7 * i + 11) % (self.vocab_size - 1) for i in range(12)]
        cache = self.new_cache(len(ids))
        ours = self.prefill(cache, ids)[0][0].float()
        theirs = model(input_ids=self._ids(ids)[None], use_cache=False).logits[0, -1].float()
        gap = ((ours - theirs).abs().max() / theirs.std()).item()
        if not gap < 0.1 + (0.6 if self.dtype != torch.float32 else 0.0):
            raise UserError(
                f"This target ({self.config.model_type}) does not compute what a Llama-type model"
                f" does (off by {gap:.2f} standard deviations); choose another target."
            )
        return gap
