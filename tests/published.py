"""Tiny random block drafters in the published layouts, and what each computes, written out plainly
from its config.json: no code of the product, no cache, one row after the other.
"""

import json
import math

import torch
from safetensors.torch import save_file

H, HEADS, KV, DIM, INNER, V, LAYERS, TAPS = 64, 4, 2, 16, 96, 128, 2, 2
MASK_ID, END = 127, 126


def qwen3(**more):
    """The part of a config that is Qwen3's."""
    return {
        "model_type": "qwen3",
        "hidden_size": H,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
        "rms_norm_eps": 1e-6,
        "vocab_size": V,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * LAYERS,
        "sliding_window": None,
        "dtype": "bfloat16",
        **more,
    }


SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "use_sliding_window": True,
    "sliding_window": 5,
}


def dflash(nested=None, **more):
    taps = {"mask_token_id": MASK_ID, "target_layer_ids": [0, 2]}
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "block_size": 8,
        "dflash_config": taps | (nested or {}),
        "num_target_layers": 4,
        **qwen3(**more),
    }


def dflash2(nested=None, **more):
    new = {
        "block_size": 8,
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 6,
        "selector_top_k": 5,
        **(nested or {}),
    }
    config = dflash(new, architectures=["DFlash2DraftModel"], is_causal=False, **(SLIDING | more))
    del config["block_size"]
    return config


def deepspec(**more):
    return {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 7,
        "mask_token_id": MASK_ID,
        "target_layer_ids": [0, 2],
        "num_target_layers": 4,
        "num_anchors": 512,
        "markov_rank": 0,
        "enable_confidence_head": False,
        **qwen3(tie_word_embeddings=False),
        **more,
    }


def dspark(**more):
    return deepspec(
        **{
            "markov_rank": 8,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
            **more,
        }
    )


def speculators(kind="dflash", inner=None, **more):
    config = qwen3(**(inner or {}))
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    return {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "speculators_config": {"algorithm": kind, "verifier": {"name_or_path": "some/target"}},
        "transformer_layer_config": config,
        "block_size": 8,
        "aux_hidden_state_layer_ids": [1, 3],
        "mask_token_id": MASK_ID,
        "draft_vocab_size": V,
        "sample_from_anchor": kind == "dspark",
        "sliding_window_non_causal": kind == "dflash2",
        **more,
    }


# name: (config, keys of its tensors beyond DFlash's)
FAMILIES = {
    "dflash": dflash(),
    "dflash biased": dflash(attention_bias=True),
    "dflash embeddings": dflash({"target_layer_ids": [-1, 1]}),
    "dflash yarn": dflash(
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    ),
    "dflash sliding": dflash(**SLIDING),
    "dflash two-way sliding": dflash(is_causal=False, **SLIDING),
    "dflash scaled": dflash(
        {"input_embedding_scale": 3.0, "output_multiplier": 0.5, "final_logit_softcapping": 4.0}
    ),
    "jetspec": dflash({"causal_head": True}),
    "dflash2": dflash2(),
    "deepspec": deepspec(),
    "dspark": dspark(),
    "dspark gated": dspark(markov_head_type="gated", confidence_head_with_markov=False),
    "speculators": speculators(inner=SLIDING),
    "speculators reduced": speculators(draft_vocab_size=50),
    "speculators dspark": speculators(
        "dspark",
        markov_rank=8,
        markov_head_type="vanilla",
        enable_confidence_head=True,
        confidence_head_with_markov=True,
        draft_vocab_size=50,
    ),
    "speculators dflash2": speculators(
        "dflash2",
        inner=SLIDING,
        conv_kernel_size=2,
        conv_group_size=8,
        selector_rank=6,
        selector_top_k=5,
    ),
}


def flat(config):
    """All facts of a config in one mapping, by z-lab's names."""
    facts = config | (config.get("dflash_config") or {})
    if inner := facts.pop("transformer_layer_config", None):
        facts = inner | facts
        facts["target_layer_ids"] = [i - 1 for i in facts["aux_hidden_state_layer_ids"]]
        facts["rope_theta"] = inner["rope_parameters"]["rope_theta"]
    return facts


def random_weights(config, seed=0):
    """Tensors by their published names, float32."""
    c, draw = flat(config), torch.Generator().manual_seed(seed)
    columns = c.get("draft_vocab_size", V)

    def normal(*shape, scale=0.3):
        return torch.randn(shape, generator=draw) * scale

    made = {"fc.weight": normal(H, TAPS * H, scale=0.15)}
    for name in ("hidden_norm", "norm"):
        made[f"{name}.weight"] = 1 + normal(H)
    for i in range(LAYERS):
        made |= {f"layers.{i}.{n}": t for n, t in _layer(c, normal).items()}
    if "conv_kernel_size" in c:
        for n in ("predecessor_codebook", "successor_codebook"):
            made[f"candidate_selector.{n}"] = normal(V, c["selector_rank"], scale=1.0)
        made["candidate_selector.hidden_projection.weight"] = normal(c["selector_rank"], H)
    if rank := c.get("markov_rank"):
        made["markov_head.markov_w1.weight"] = normal(V, rank, scale=1.0)
        made["markov_head.markov_w2.weight"] = normal(columns, rank, scale=1.0)
        if c["markov_head_type"] == "gated":
            made["markov_head.gate_proj.weight"] = normal(rank, H + rank)
            made["markov_head.gate_proj.bias"] = normal(rank)
    if c.get("enable_confidence_head"):
        width = H + (rank if c["confidence_head_with_markov"] else 0)
        made["confidence_head.proj.weight"] = normal(1, width)
        made["confidence_head.proj.bias"] = normal(1)
    if "num_anchors" in c:  # DeepSpec keeps embedding and head of its own
        made["embed_tokens.weight"], made["lm_head.weight"] = normal(V, H), normal(V, H)
    if columns < V:
        ids = torch.randperm(MASK_ID - 1, generator=draw)[:columns].sort().values
        made["d2t"] = ids - torch.arange(columns)
        made["t2d"] = torch.zeros(V, dtype=torch.bool).index_fill_(0, ids, True)
        made["lm_head.weight"] = normal(columns, H)
    return made


def _layer(c, normal):
    sizes = {"q_proj": (HEADS * DIM, H), "k_proj": (KV * DIM, H), "v_proj": (KV * DIM, H)}
    sizes["o_proj"] = (H, HEADS * DIM)
    made = {f"self_attn.{n}.weight": normal(*shape) for n, shape in sizes.items()}
    if c["attention_bias"]:
        made |= {f"self_attn.{n}.bias": normal(shape[0]) for n, shape in sizes.items()}
    for name in ("q_norm", "k_norm"):
        made[f"self_attn.{name}.weight"] = 1 + normal(DIM)
    made["mlp.gate_proj.weight"], made["mlp.up_proj.weight"] = normal(INNER, H), normal(INNER, H)
    made["mlp.down_proj.weight"] = normal(H, INNER)
    for name in ("input_layernorm", "post_attention_layernorm"):
        made[f"{name}.weight"] = 1 + normal(H)
    if taps := c.get("conv_kernel_size"):
        for name in ("attention_conv", "mlp_conv"):
            made[f"{name}.base_kernel"] = normal(2, taps, H) + 0.5
            groups = H // c["conv_group_size"]
            made[f"{name}.kernel_projection.weight"] = normal(2 * taps * groups, H, scale=0.1)
    return made


def write(folder, config, weights):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# -- what it computes ------------------------------------------------------------------------------


class Plain:
    """The published computation of one block, for ``embedding`` and ``head`` of the target."""

    def __init__(self, config, weights, embedding, head):
        self.c, self.w = flat(config), weights
        self.embedding = weights.get("embed_tokens.weight", embedding)
        self.head = weights.get("lm_head.weight", head)
        ids = torch.arange(len(self.head))
        self.ids = ids + weights["d2t"] if "d2t" in weights else ids
        self.shift = int("num_anchors" in self.c or self.c.get("sample_from_anchor", False))

    def norm(self, x, name):
        eps = self.c["rms_norm_eps"]
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * self.w[f"{name}.weight"]

    def product(self, x, name):
        out = x @ self.w[f"{name}.weight"].T
        return out + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else out

    def rotate(self, x, position):
        """``x [heads, DIM]`` at one position: pairs (i, i + DIM / 2) turn by an angle each."""
        half, scaling = DIM // 2, self.c.get("rope_scaling") or {}
        theta, out, scale = self.c["rope_theta"], x.clone(), 1.0
        for i in range(half):
            speed = theta ** (-2 * i / DIM)
            if scaling:  # yarn (arXiv 2309.00071)
                factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

                def pair_of(turns, original=original):
                    return DIM * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

                low, high = max(math.floor(pair_of(32)), 0), min(math.ceil(pair_of(1)), DIM - 1)
                ramp = min(max((i - low) / max(high - low, 1e-3), 0.0), 1.0)
                speed = speed / factor * ramp + speed * (1 - ramp)
                scale = 0.1 * math.log(factor) + 1
            cos, sin = scale * math.cos(position * speed), scale * math.sin(position * speed)
            out[:, i] = x[:, i] * cos - x[:, i + half] * sin
            out[:, i + half] = x[:, i + half] * cos + x[:, i] * sin
        return out

    def sees(self, layer, slot, key):
        """Whether a slot sees the key at that position relative to the anchor."""
        c, inside = self.c, key >= 0
        sliding = c["layer_types"][layer] == "sliding_attention"
        window = c["sliding_window"] if sliding else None
        if "speculators_model_type" in c:
            causal = sliding and not c["sliding_window_non_causal"]
            if inside:
                return key <= slot or not causal
            return window is None or key >= -window
        causal = c.get("causal_head", c.get("is_causal", sliding))
        near = window is None or (slot - key < window and key - slot < window)
        return near and (key <= slot or not causal)

    def convolve(self, x, name, which):
        """``x [w, H]`` through the first (0) or second (1) convolution; deltas are of the first."""
        taps, group = self.c["conv_kernel_size"], self.c["conv_group_size"]
        if which == 0:
            self.deltas = (x @ self.w[f"{name}.kernel_projection.weight"].T).view(
                len(x), 2, taps, H // group
            )
        out = torch.zeros_like(x)
        for t in range(len(x)):
            for j in range(min(taps, t + 1)):
                delta = self.deltas[t, which, j].repeat_interleave(group)
                out[t] += (self.w[f"{name}.base_kernel"][which, j] + delta) * x[t - j]
        return out

    def half(self, x, name, compute):
        if "conv_kernel_size" not in self.c:
            return compute(x)
        return self.convolve(compute(self.convolve(x, name, 0)), name, 1)

    def hidden(self, features, block):
        """States ``[w, H]`` of the rows of ``block`` (ids, masks as the mask's id) behind
        ``features [c, TAPS * H]``.
        """
        context = self.norm(features @ self.w["fc.weight"].T, "hidden_norm")
        x = self.embedding[block] * self.c.get("input_embedding_scale", 1.0)
        for i in range(LAYERS):
            at = f"layers.{i}"

            def attention(normed, i=i, at=at):
                return self.attention(i, f"{at}.self_attn", normed, context)

            def mlp(normed, at=at):
                gate = self.product(normed, f"{at}.mlp.gate_proj")
                up = self.product(normed, f"{at}.mlp.up_proj")
                return self.product(gate * torch.sigmoid(gate) * up, f"{at}.mlp.down_proj")

            normed = self.norm(x, f"{at}.input_layernorm")
            x = x + self.half(normed, f"{at}.attention_conv", attention)
            normed = self.norm(x, f"{at}.post_attention_layernorm")
            x = x + self.half(normed, f"{at}.mlp_conv", mlp)
        return self.norm(x, "norm")

    def attention(self, layer, at, rows, context):
        both = torch.cat((context, rows))
        anchor = len(context)
        keys = self.norm(self.product(both, f"{at}.k_proj").view(-1, KV, DIM), f"{at}.k_norm")
        values = self.product(both, f"{at}.v_proj").view(-1, KV, DIM)
        queries = self.norm(self.product(rows, f"{at}.q_proj").view(-1, HEADS, DIM), f"{at}.q_norm")
        keys = torch.stack([self.rotate(k, p) for p, k in enumerate(keys)])
        out = []
        for slot, query in enumerate(queries):
            query = self.rotate(query, anchor + slot)
            seen = [k for k in range(len(both)) if self.sees(layer, slot, k - anchor)]
            heads = []
            for head in range(HEADS):
                group = head // (HEADS // KV)
                scores = keys[seen, group] @ query[head] / DIM**0.5
                heads.append(scores.softmax(0) @ values[seen, group])
            out.append(torch.cat(heads))
        return self.product(torch.stack(out), f"{at}.o_proj")

    def logits(self, hidden):
        out = hidden @ self.head.T * self.c.get("output_multiplier", 1.0)
        cap = self.c.get("final_logit_softcapping")
        return out if cap is None else torch.tanh(out / cap) * cap

    def predict(self, features, anchor, count):
        """States and logits ``[count, ...]`` for the positions behind the anchor."""
        block = torch.tensor([anchor] + [MASK_ID] * (count - self.shift))
        hidden = self.hidden(features, block)[1 - self.shift :]
        logits = self.logits(hidden)
        return hidden, logits

    def draft(self, features, anchor, count):
        """The greedy draft, and DSpark's confidence in its tokens (else empty)."""
        hidden, logits = self.predict(features, anchor, count)
        logits[:, self.ids == MASK_ID] = -math.inf
        before, draft, confidence = anchor, [], []
        for h, row in zip(hidden, logits, strict=True):
            if "markov_head.markov_w1.weight" in self.w:
                inner = self.w["markov_head.markov_w1.weight"][before]
                word = inner
                if "markov_head.gate_proj.weight" in self.w:
                    gate = self.product(torch.cat((h, inner)), "markov_head.gate_proj")
                    inner = torch.sigmoid(gate) * inner
                row = row + inner @ self.w["markov_head.markov_w2.weight"].T
                if "confidence_head.proj.weight" in self.w:
                    full = torch.cat((h, word)) if self.c["confidence_head_with_markov"] else h
                    confidence.append(
                        torch.sigmoid(self.product(full, "confidence_head.proj")).item()
                    )
            if "selector_top_k" in self.c:
                best = row.topk(self.c["selector_top_k"])
                state = self.w["candidate_selector.hidden_projection.weight"] @ h
                pairs = self.w["candidate_selector.predecessor_codebook"][before] * state
                pairs = self.w["candidate_selector.successor_codebook"][best.indices] @ pairs
                column = best.indices[(best.values + pairs).argmax()]
            else:
                column = row.argmax()
            before = int(self.ids[column])
            draft.append(before)
        return draft, confidence
