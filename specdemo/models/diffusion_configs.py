"""The published families of diffusion language models: what their config.json must say, what it may
say, and how their tensors are called.

Every setting is read, must have the one value we compute, or is known to change nothing; one that
is none of these is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError, shown
from .diffusion_lm import DiffusionConfig


@dataclass(frozen=True)
class Names:
    """What the tensors of a Llama-type network are called; ``layer`` comes before its parts."""

    embed: str = "model.embed_tokens"
    norm: str = "model.norm"
    head: str = "lm_head"
    layer: str = "model.layers.{}."
    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    out: str = "self_attn.o_proj"
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    attention_norm: str = "input_layernorm"
    mlp_norm: str = "post_attention_layernorm"


LLADA_NAMES = Names(
    embed="model.transformer.wte",
    norm="model.transformer.ln_f",
    head="model.transformer.ff_out",
    layer="model.transformer.blocks.{}.",
    q="q_proj",
    k="k_proj",
    v="v_proj",
    out="attn_out",
    gate="ff_proj",
    up="up_proj",
    down="ff_out",
    attention_norm="attn_norm",
    mlp_norm="ff_norm",
)

# settings of training, generation and storage, which no forward pass reads
INERT = {
    *("_name_or_path", "architectures", "auto_map", "model_type", "transformers_version"),
    *("dtype", "torch_dtype", "use_cache", "return_dict", "initializer_range", "chunk_size_feed"),
    *("attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id", "max_window_layers"),
    *("sliding_window", "output_hidden_states", "output_attentions"),
}
# settings that must have one value where they are given
PLAIN: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "use_mrope": False,
    "pretraining_tp": 1,
    "quantization_config": None,
}


@dataclass(frozen=True)
class Family:
    """One published family.

    Attributes:
        name: for people. source: where its code is published.
        attention: ``both ways``, ``blocks`` (the setting ``block`` must say how long), or
            ``either`` (blocks where that setting is given).
        bias, qk_norm: whether q, k and v have biases, q and k norms of their own.
        head_dim: whether the config must give it (else it is the hidden size by the heads).
        mask: the mask's text in its tokenizer, for configs without ``mask_token_id``.
        keys: our name of a setting to the family's, where they differ.
        fixed: see :data:`PLAIN`. inert: see :data:`INERT`.
        names: None for the diffusion transformer (:mod:`.mdlm`).
    """

    name: str
    source: str
    attention: Literal["both ways", "blocks", "either"]
    shifted: bool = False
    bias: bool = False
    qk_norm: bool = False
    head_dim: bool = False
    block: str = "block_size"
    mask: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=lambda: PLAIN)
    inert: frozenset[str] = frozenset()
    names: Names | None = Names()


_LLADA = {
    "alibi": False,
    "rope": True,
    "attention_layer_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "block_type": "llama",
    "block_group_size": 1,
    "activation_type": "silu",
    "multi_query_attention": False,
    "rope_scaling": None,
    "quantization_config": None,
}
_A2D = Family("A2D", "github.com/ZHZisZZ/dllm, dllm/pipelines/a2d", "either", mask="<|mask|>")
_DIT = {"time_conditioning": False, "causal": False, "adaln": True, "quantization_config": None}
_DIT_KEYS = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "n_blocks",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "model_length",
}
_DIT_INERT = frozenset(
    {"dropout", "attn_backend", "var_min", "sampling_eps_min", "sampling_eps_max", "cond_dim"}
)

# by the model_type of config.json
FAMILIES: dict[str, Family] = {
    "Dream": Family(
        "Dream",
        "hub: Dream-org/Dream-v0-Instruct-7B, modeling_dream.py and generation_utils.py",
        "both ways",
        shifted=True,
        bias=True,
        mask="<|mask|>",
    ),
    "a2d-qwen2": replace(_A2D, name="A2D of Qwen2", bias=True),
    "a2d-qwen3": replace(_A2D, name="A2D of Qwen3", qk_norm=True, head_dim=True),
    "a2d-llama": replace(_A2D, name="A2D of Llama"),
    "sdar": Family(
        "SDAR",
        "github.com/JetAstra/SDAR, generate.py and modeling_sdar.py",
        "blocks",
        qk_norm=True,
        head_dim=True,
        mask="<|MASK|>",
        inert=frozenset(
            "debug ep_size fuse_cross_entropy micro_forward skip_checkpoint use_deepep".split()
        ),
    ),
    "Fast_dLLM_Qwen": Family(
        "Fast-dLLM v2",
        "hub: Efficient-Large-Model/Fast_dLLM_v2_7B, modeling.py",
        "blocks",
        shifted=True,
        bias=True,
        block="bd_size",
        mask="|<MASK>|",
    ),
    "llada": Family(
        "LLaDA",
        "hub: GSAI-ML/LLaDA-8B-Instruct, modeling_llada.py",
        "both ways",
        keys={
            "hidden_size": "d_model",
            "intermediate_size": "mlp_hidden_size",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "num_key_value_heads": "n_kv_heads",
            "max_position_embeddings": "max_sequence_length",
            "vocab_size": "embedding_size",
            "tie_word_embeddings": "weight_tying",
        },
        mask="<|mdm_mask|>",
        fixed=_LLADA,
        inert=frozenset(
            """vocab_size mlp_ratio flash_attention precision init_device init_fn init_std
            init_cutoff_factor embedding_dropout residual_dropout rope_full_precision
            attention_layer_norm_with_affine alibi_bias_max""".split()
        ),
        names=LLADA_NAMES,
    ),
    "mdlm": Family(
        "MDLM",
        "hub: kuleshov-group/mdlm-owt, modeling_mdlm.py",
        "both ways",
        keys=_DIT_KEYS,
        fixed=_DIT,
        inert=_DIT_INERT,
        names=None,
    ),
    "bd3lm": Family(
        "BD3LM",
        "github.com/kuleshov-group/bd3lms, models/dit.py",
        "blocks",
        keys=_DIT_KEYS,
        fixed=_DIT | {"cross_attn": True},
        inert=_DIT_INERT,
        names=None,
    ),
}


class Settings:
    """A config.json of one family. Whatever :meth:`get` and :meth:`need` were not asked for is
    refused by :meth:`check_rest`.
    """

    def __init__(self, raw: dict[str, Any], folder: Path) -> None:
        self.raw, self.folder, self.family = raw, folder, FAMILIES[raw["model_type"]]
        self._read: set[str] = set()

    def get(self, name: str) -> Any:
        """A setting by our name; None where it is not given."""
        key = self.family.keys.get(name, name)
        self._read.add(key)
        return self.raw.get(key)

    def need(self, name: str, kind: type[int | float] = int, least: float = 1) -> Any:
        """A number that must be given.

        Raises:
            UserError: it is missing, or no number of that kind.
        """
        value, key = self.get(name), self.family.keys.get(name, name)
        if value is None:
            raise UserError(
                f"The config.json of the {self.family.name} drafter in {self.folder} lacks"
                f" “{key}”; fetch it again or add the number its authors name."
            )
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not value >= least:
            raise UserError(
                f"The config.json of the {self.family.name} drafter in {self.folder} has {key} ="
                f" {shown(value)}, which must be a {'whole ' if kind is int else ''}number of at"
                f" least {least:g}; fetch it again."
            )
        return value

    def check_rest(self) -> None:
        """Refuse what changes the computation in a way that is not computed here, by name."""
        family = self.family
        layers = self.raw.get("layer_types")
        if family.fixed is PLAIN and layers and set(layers) == {"full_attention"}:
            self._read.add("layer_types")
        for key, value in self.raw.items():
            if key in self._read or key in INERT or key in family.inert:
                continue
            if key == "attention_bias" and family.bias:
                continue  # Qwen2's layers have their biases in any case
            if key in family.fixed and (value == family.fixed[key] or value is None):
                continue
            raise UserError(
                f"The config.json of the {family.name} drafter in {self.folder} has the setting"
                f" “{key}” = {shown(value)}, which SpecDemo does not compute; choose another"
                " drafter, or take the setting out if it does not change what the model computes."
            )


def read_config(raw: dict[str, Any], folder: Path, mask: int | None) -> DiffusionConfig:
    """What a config.json of one of :data:`FAMILIES` says.

    Args:
        mask: the id of the mask in the folder's tokenizer, None where that does not say.

    Raises:
        UserError: something is missing, contradicts itself or is not computed here.
    """
    s = Settings(raw, folder)
    family = s.family
    hidden, heads = s.need("hidden_size"), s.need("num_attention_heads")
    lm = family.names is not None
    dim = s.need("head_dim") if family.head_dim else s.get("head_dim") or hidden // heads
    kv_heads = s.need("num_key_value_heads") if lm else heads
    if hidden % heads and not family.head_dim or heads % kv_heads or dim % 2:
        raise UserError(
            f"The config.json of the {family.name} drafter in {folder} has {heads} heads,"
            f" {kv_heads} of them with keys, of {dim} numbers for a hidden size of {hidden}, which"
            " do not divide; fetch it again."
        )
    if lm:
        s.need("intermediate_size")
        s.get("tie_word_embeddings")
    vocab, window = s.need("vocab_size"), s.need("max_position_embeddings")
    block = _block(s)
    if window < 4 * ((block or 1) + 1):
        raise UserError(
            f"The {family.name} drafter in {folder} reads {window} positions, which are too few"
            " to draft behind a text; choose another drafter."
        )
    config = DiffusionConfig(
        family=family.name,
        mask_token_id=_mask_id(s, mask, vocab),
        shifted=family.shifted,
        block=block,
        random_order=not lm,
        context_window=window,
        vocab_size=vocab,
        num_hidden_layers=s.need("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=dim,
        rms_norm_eps=s.need("rms_norm_eps", float, 0) if lm else 1e-5,
        max_position_embeddings=window,
        rope_parameters=_rope(s) if lm else {"rope_type": "default", "rope_theta": 10000.0},
    )
    s.check_rest()
    return config


def _block(s: Settings) -> int | None:
    """Positions of a block. An A2D model is one network for both patterns: its config says which
    only where it names a block.
    """
    family = s.family
    if family.attention == "blocks" or (family.attention == "either" and s.get(family.block)):
        return s.need(family.block)
    # the hub's cache: models--owner--name/snapshots/revision
    if family.attention == "either" and "bd3lm" in "/".join(s.folder.parts[-3:]).lower():
        raise UserError(
            f"The drafter in {s.folder} is a block diffusion model by its name, but its config.json"
            f" has no “{family.block}”; add it (its authors use 32)."
        )
    return None


def _mask_id(s: Settings, found: int | None, vocab: int) -> int:
    """The id of the mask: as the config says, else as the tokenizer does; a diffusion transformer
    without either has it behind all tokens (MDLM: ``mask_index = vocab_size``).
    """
    given, family = s.get("mask_token_id"), s.family
    if given is None and found is None and family.names is None:
        return vocab - 1
    if given is None and found is None:
        raise UserError(
            f"The config.json of the {family.name} drafter in {s.folder} lacks “mask_token_id”, and"
            f" its tokenizer has no {family.mask}; fetch it again with its tokenizer files."
        )
    mask: Any = found if given is None else s.need("mask_token_id", least=0)
    if given is not None and found is not None and given != found:
        raise UserError(
            f"The {family.name} drafter in {s.folder} has mask_token_id {given} in config.json and"
            f" {found} in its tokenizer; fetch it again."
        )
    if mask >= vocab:
        raise UserError(
            f"The {family.name} drafter in {s.folder} has mask_token_id {mask}, which is no row of"
            f" its embedding (0 to {vocab - 1}); fetch it again."
        )
    return mask


def _rope(s: Settings) -> dict[str, Any]:
    """As transformers 5 writes it; older files have ``rope_theta`` and ``rope_scaling``."""
    scaling, parameters = s.get("rope_scaling"), s.get("rope_parameters")
    given = {**(scaling or {}), **(parameters or {})}
    if "type" in given:
        given.setdefault("rope_type", given.pop("type"))
    given.setdefault("rope_type", "default")
    if s.get("rope_theta") is not None or "rope_theta" not in given:
        given["rope_theta"] = float(s.need("rope_theta", float, 0))
    return given
