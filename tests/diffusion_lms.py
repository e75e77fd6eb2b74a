"""Tiny random diffusion language models in their published layouts, and what they compute, written
down plainly: whole sequences, no caches, nothing of the package.
"""

import json
import math

import torch
from safetensors.torch import save_file

TOKENS, MASK_ID, ROWS = 128, 128, 136  # the target's tokens; the mask behind them; padded rows

GENERAL = {"attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True}
QWEN = {
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": ROWS,
    **GENERAL,
}
LLADA = {
    "d_model": 48,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 80,
    "mlp_ratio": 4,
    "vocab_size": ROWS,
    "embedding_size": ROWS,
    "rope": True,
    "alibi": False,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "max_sequence_length": 256,
    "block_type": "llama",
    "block_group_size": 1,
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "include_bias": False,
    "weight_tying": False,
    "scale_logits": False,
    "alibi_bias_max": 8.0,
    "multi_query_attention": None,
    "mask_token_id": MASK_ID,
    "eos_token_id": 126,
}
DIT = {
    "hidden_dim": 48,
    "cond_dim": 16,
    "n_blocks": 2,
    "n_heads": 4,
    "vocab_size": TOKENS + 1,
    "model_length": 64,
    "time_conditioning": False,
    "dropout": 0.1,
    "return_dict": False,
}

# by the model_type of config.json
CONFIGS = {
    "Dream": {**QWEN, "mask_token_id": MASK_ID, "architectures": ["DreamModel"]},
    "a2d-qwen2": {**QWEN, "attention_bias": True},
    "a2d-qwen3": {**QWEN, "head_dim": 16, "attention_bias": False, "tie_word_embeddings": True},
    "a2d-qwen3 in blocks": {
        **QWEN,
        "model_type": "a2d-qwen3",
        "head_dim": 16,
        "block_size": 8,
        "layer_types": ["full_attention"] * 2,
    },
    "a2d-llama": {**QWEN, "mlp_bias": False, "pretraining_tp": 1},
    "sdar": {
        **QWEN,
        "head_dim": 16,
        "mask_token_id": MASK_ID,
        "block_size": 4,
        "fuse_cross_entropy": True,
    },
    "Fast_dLLM_Qwen": {**QWEN, "bd_size": 8},
    "llada": LLADA,
    "mdlm": DIT,
    "bd3lm": {**DIT, "block_size": 4, "cross_attn": True, "attn_backend": "sdpa", "var_min": True},
}
MASK_TEXT = {"sdar": "<|MASK|>", "Fast_dLLM_Qwen": "|<MASK>|", "llada": "<|mdm_mask|>"}
SHIFTED = {"Dream", "Fast_dLLM_Qwen"}


def config_of(family, **changes):
    """The config.json of a family as it is published, but small."""
    config = {"model_type": family, "auto_map": {"AutoModel": "modeling_x.Model"}}
    return {**config, **CONFIGS[family], **changes}


def make_weights(config, seed=5):
    """Random tensors of the published names; matrices are scaled so that rows differ clearly."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator) / math.sqrt(shape[-1]) * 1.5

    def near_one(n):
        return 1 + 0.2 * torch.randn(n, generator=generator)

    if config["model_type"] in ("mdlm", "bd3lm"):
        return dit_weights(config, random, near_one)
    if config["model_type"] == "llada":
        return llada_weights(config, random, near_one)
    w, c = {}, config
    hidden, inner, rows = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    dim = c.get("head_dim", hidden // c["num_attention_heads"])
    sizes = {"q": c["num_attention_heads"], "k": c["num_key_value_heads"]}
    sizes["v"] = sizes["k"]
    w["model.embed_tokens.weight"] = random(rows, hidden) * 3
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for part, heads in sizes.items():
            w[f"{at}self_attn.{part}_proj.weight"] = random(heads * dim, hidden)
            if c["model_type"] in ("Dream", "a2d-qwen2", "Fast_dLLM_Qwen"):
                w[f"{at}self_attn.{part}_proj.bias"] = random(heads * dim)
            if c["model_type"] in ("a2d-qwen3", "sdar") and part != "v":
                w[f"{at}self_attn.{part}_norm.weight"] = near_one(dim)
        w[f"{at}self_attn.o_proj.weight"] = random(hidden, c["num_attention_heads"] * dim)
        for part in ("gate", "up"):
            w[f"{at}mlp.{part}_proj.weight"] = random(inner, hidden)
        w[f"{at}mlp.down_proj.weight"] = random(hidden, inner)
        for part in ("input_layernorm", "post_attention_layernorm"):
            w[f"{at}{part}.weight"] = near_one(hidden)
    w["model.norm.weight"] = near_one(hidden)
    if not c["tie_word_embeddings"]:
        w["lm_head.weight"] = random(rows, hidden) * 2
    return w


def llada_weights(c, random, near_one):
    w, hidden, inner = {}, c["d_model"], c["mlp_hidden_size"]
    root = "model.transformer."
    w[root + "wte.weight"] = random(c["embedding_size"], hidden) * 3
    for i in range(c["n_layers"]):
        at = f"{root}blocks.{i}."
        for part in ("q_proj", "k_proj", "v_proj", "attn_out"):
            w[f"{at}{part}.weight"] = random(hidden, hidden)
        w[f"{at}ff_proj.weight"] = random(inner, hidden)
        w[f"{at}up_proj.weight"] = random(inner, hidden)
        w[f"{at}ff_out.weight"] = random(hidden, inner)
        for part in ("attn_norm", "ff_norm"):
            w[f"{at}{part}.weight"] = near_one(hidden)
    w[root + "ln_f.weight"] = near_one(hidden)
    w[root + "ff_out.weight"] = random(c["embedding_size"], hidden) * 2
    return w


def dit_weights(c, random, near_one):
    w, hidden, cond = {}, c["hidden_dim"], c["cond_dim"]
    root = "backbone."
    w[root + "vocab_embed.embedding"] = random(c["vocab_size"], hidden) * 3
    w[root + "sigma_map.mlp.0.weight"], w[root + "sigma_map.mlp.0.bias"] = (
        random(cond, 256),
        random(cond),
    )
    w[root + "sigma_map.mlp.2.weight"], w[root + "sigma_map.mlp.2.bias"] = (
        random(cond, cond),
        random(cond),
    )
    half = hidden // c["n_heads"] // 2
    w[root + "rotary_emb.inv_freq"] = 10000.0 ** -(torch.arange(half) / half)
    parts = {f"blocks.{i}.": 6 for i in range(c["n_blocks"])} | {"output_layer.": 2}
    for part, count in parts.items():
        at = root + part
        w[at + "adaLN_modulation.weight"] = random(count * hidden, cond)
        w[at + "adaLN_modulation.bias"] = random(count * hidden)
        if count == 2:
            w[at + "norm_final.weight"] = near_one(hidden)
            w[at + "linear.weight"] = random(c["vocab_size"], hidden) * 2
            w[at + "linear.bias"] = random(c["vocab_size"])
            continue
        w[at + "norm1.weight"], w[at + "norm2.weight"] = near_one(hidden), near_one(hidden)
        w[at + "attn_qkv.weight"] = random(3 * hidden, hidden)
        w[at + "attn_out.weight"] = random(hidden, hidden)
        w[at + "mlp.0.weight"], w[at + "mlp.0.bias"] = (
            random(4 * hidden, hidden),
            random(4 * hidden),
        )
        w[at + "mlp.2.weight"], w[at + "mlp.2.bias"] = random(hidden, 4 * hidden), random(hidden)
    return w


def save_diffusion_lm(folder, family, tokenizer, weights=None, **changes):
    """A checkpoint folder of that family, with tokenizer files as it has them, for a target whose
    tokens are ``tokenizer``'s.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(family, **changes)
    config = {k: v for k, v in config.items() if v != "left out"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        make_weights(config_of(family)) if weights is None else weights,
        folder / "model.safetensors",
    )
    kind = config["model_type"]
    if kind in ("mdlm", "bd3lm"):
        return folder  # they have none
    mask = MASK_TEXT.get(kind, "<|mask|>")
    if kind in ("Dream", "Fast_dLLM_Qwen"):  # no tokenizer.json
        special = set(tokenizer.added_tokens_decoder)
        base = {t: i for t, i in tokenizer.get_vocab().items() if i not in special}
        added = {t: i for t, i in tokenizer.get_vocab().items() if i in special}
        (folder / "vocab.json").write_text(json.dumps(base))
        (folder / "added_tokens.json").write_text(json.dumps(added | {mask: MASK_ID}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        return folder
    tokenizer.save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    extra = {**whole["added_tokens"][-1], "id": MASK_ID, "content": mask}
    whole["added_tokens"].append(extra)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return folder


# -- what they compute -----------------------------------------------------------------------------


def visible(n, block):
    """Who reads whom: bool ``[n, n]``."""
    if block is None:
        return torch.ones(n, n, dtype=torch.bool)
    return torch.tensor([[j // block <= i // block for j in range(n)] for i in range(n)])


def turned(x, theta, inv_freq=None):
    """``x [heads, n, D]`` with rotary positions 0 to n - 1."""
    n, dim = x.shape[1], x.shape[2]
    out = torch.empty_like(x)
    for pair in range(dim // 2):
        speed = theta ** (-2 * pair / dim)
        angle = torch.arange(n) * speed
        a, b = x[:, :, pair], x[:, :, pair + dim // 2]
        out[:, :, pair] = a * angle.cos() - b * angle.sin()
        out[:, :, pair + dim // 2] = b * angle.cos() + a * angle.sin()
    return out


def attention(q, k, v, seen):
    """``q [heads, n, D]``, ``k, v`` of perhaps fewer heads to ``[n, heads * D]``."""
    share = q.shape[0] // k.shape[0]
    rows = []
    for head in range(q.shape[0]):
        scores = q[head] @ k[head // share].T / math.sqrt(q.shape[-1])
        rows.append(scores.masked_fill(~seen, -math.inf).softmax(-1) @ v[head // share])
    return torch.cat(rows, -1)


def rms(x, weight, eps):
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def plain_logits(config, w, ids):
    """The logits ``[n, rows]`` of every row over the sequence ``ids``, not shifted, SUBS not
    applied.
    """
    kind = config["model_type"]
    block = config.get("block_size") or config.get("bd_size")
    seen = visible(len(ids), block)
    if kind in ("mdlm", "bd3lm"):
        return plain_dit(config, w, ids, seen)
    if kind == "llada":
        config, w = llada_as_llama(config, w)
    x = w["model.embed_tokens.weight"][ids]
    eps, heads = config["rms_norm_eps"], config["num_attention_heads"]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        normed = rms(x, w[f"{at}input_layernorm.weight"], eps)
        parts = {}
        for part in "qkv":
            name = f"{at}self_attn.{part}_proj."
            y = normed @ w[name + "weight"].T + w.get(name + "bias", 0)
            count = heads if part == "q" else config["num_key_value_heads"]
            y = y.view(len(ids), count, -1).transpose(0, 1)
            if f"{at}self_attn.{part}_norm.weight" in w:
                y = rms(y, w[f"{at}self_attn.{part}_norm.weight"], eps)
            parts[part] = y if part == "v" else turned(y, config["rope_theta"])
        x = (
            x
            + attention(parts["q"], parts["k"], parts["v"], seen)
            @ w[f"{at}self_attn.o_proj.weight"].T
        )
        normed = rms(x, w[f"{at}post_attention_layernorm.weight"], eps)
        gate, up = (normed @ w[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate * gate.sigmoid() * up) @ w[f"{at}mlp.down_proj.weight"].T
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return rms(x, w["model.norm.weight"], eps) @ w[head + ".weight"].T


def llada_as_llama(config, w):
    """LLaDA's config and tensors under Llama's names."""
    names = {"q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj"}
    names |= {"v_proj": "self_attn.v_proj", "attn_out": "self_attn.o_proj"}
    names |= {"ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj"}
    names |= {"attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm"}
    root, out = "model.transformer.", {}
    for i in range(config["n_layers"]):
        for name, new in names.items():
            out[f"model.layers.{i}.{new}.weight"] = w[f"{root}blocks.{i}.{name}.weight"]
    out["model.embed_tokens.weight"] = w[root + "wte.weight"]
    out["model.norm.weight"] = w[root + "ln_f.weight"]
    out["lm_head.weight"] = w[root + "ff_out.weight"]
    return {
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config["n_kv_heads"],
        "rms_norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_theta"],
        "tie_word_embeddings": False,
    }, out


def plain_dit(config, w, ids, seen):
    """MDLM's backbone with sigma 0, as its own code runs it."""
    silu = torch.nn.functional.silu
    wave = torch.cat([torch.cos(torch.zeros(128)), torch.sin(torch.zeros(128))])
    mlp = "backbone.sigma_map.mlp."
    c = silu(w[mlp + "0.weight"] @ wave + w[mlp + "0.bias"])
    c = silu(w[mlp + "2.weight"] @ c + w[mlp + "2.bias"])
    hidden, heads = config["hidden_dim"], config["n_heads"]

    def norm(x, weight):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    def modulation(at):
        out = w[at + "adaLN_modulation.weight"] @ c + w[at + "adaLN_modulation.bias"]
        return out.split(hidden)

    x = w["backbone.vocab_embed.embedding"][ids]
    for i in range(config["n_blocks"]):
        at = f"backbone.blocks.{i}."
        shift, scale, gate, shift2, scale2, gate2 = modulation(at)
        y = norm(x, w[at + "norm1.weight"]) * (1 + scale) + shift
        q, k, v = (
            (y @ part.T).view(len(ids), heads, -1).transpose(0, 1)
            for part in w[at + "attn_qkv.weight"].split(hidden)
        )
        read = attention(turned(q, 10000.0), turned(k, 10000.0), v, seen)
        x = x + gate * (read @ w[at + "attn_out.weight"].T)
        y = norm(x, w[at + "norm2.weight"]) * (1 + scale2) + shift2
        y = y @ w[at + "mlp.0.weight"].T + w[at + "mlp.0.bias"]
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + gate2 * (y @ w[at + "mlp.2.weight"].T + w[at + "mlp.2.bias"])
    at = "backbone.output_layer."
    shift, scale = modulation(at)
    x = norm(x, w[at + "norm_final.weight"]) * (1 + scale) + shift
    return x @ w[at + "linear.weight"].T + w[at + "linear.bias"]


def expected_draft_logits(config, w, text, slots):
    """What the published sampler reads for ``slots`` masks behind ``text``, whose last token is the
    anchor: ``[slots, rows]``. Where the model has blocks the last one is masked to its end.
    """
    block = config.get("block_size") or config.get("bd_size")
    mask = config.get("mask_token_id", MASK_ID)
    ids = text + [mask] * slots
    if block:
        ids = ids + [mask] * (-len(ids) % block)
    logits = plain_logits(config, w, ids)
    if config["model_type"] in SHIFTED:
        logits = torch.cat([logits[:1], logits[:-1]])
    return logits[len(text) : len(text) + slots]
