"""Makers of tiny random models; fixtures that use them are in conftest.py."""

import torch


def make_tiny_target(vocab=128, layers=2, hidden=64, seed=0, **more):
    """A random Llama whose matrices are scaled up, so that its picks are clear and its text does
    not loop.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = dict(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(LlamaConfig(**{**config, **more})).eval()
    for p in model.parameters():
        p.requires_grad_(False).mul_(4 if p.dim() > 1 else 1)
    return model


def make_tiny_drafter(
    target, layout="own", block_size=8, layers=2, draft_vocab=None, seed=1, bound=True, **more
):
    """A random block drafter for ``target``: ``own`` is our layout (own context projections,
    learned mask), ``shared`` is z-lab's, ``text`` reads tokens instead of features.
    """
    from specdemo.models.block_drafter import BlockDrafterConfig
    from specdemo.models.text_drafter import block_network

    ours, text = layout in ("own", "text"), layout == "text"
    c = target.config
    torch.manual_seed(seed)
    config = BlockDrafterConfig(
        **{
            **{
                "hidden_size": c.hidden_size,
                "intermediate_size": c.intermediate_size,
                "num_hidden_layers": layers,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "rope_theta": 10000.0,
                "vocab_size": c.vocab_size,
                "block_size": block_size,
                "num_target_layers": c.num_hidden_layers,
                "mask_token_id": c.vocab_size - 1,
                "target_layer_ids": [] if text else list(range(c.num_hidden_layers)),
                "context": "text" if text else "target",
                "qk_norm": not ours,
                "context_projection": "own" if layout == "own" else "shared",
                "mask_embedding": "learned" if ours else "token",
            },
            **more,
        }
    )
    net = block_network(config)(config, draft_vocab=draft_vocab).eval()
    for p in net.parameters():
        p.requires_grad_(False).mul_(4 if p.dim() > 1 else 1)
    if bound:
        net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)
    return net


def features_of(target, layer_ids, ids):
    """Target features ``[n, taps * H]`` of the tokens ``ids`` and its logits ``[n, V]``."""
    with torch.no_grad():
        out = target(torch.tensor([ids]), output_hidden_states=True)
    return torch.cat([out.hidden_states[i + 1][0] for i in layer_ids], -1), out.logits[0]


def make_tiny_tokenizer(size=128, special=("<end>", "<mask>")):
    """Words t0, t1, ...; the special tokens take the last ids. The chat template puts <end> after
    each message.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [f"t{i}" for i in range(size - len(special))] + list(special)
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="t0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="t0")
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <end> {% endfor %}"
    )
    return tokenizer


def make_byte_tokenizer(template, special=("<|a|>", "<|end|>"), added=()):
    """A byte-level BPE without merges, so that every text has an id a byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, additional_special_tokens=list(special)
    )
    tokenizer.chat_template = template
    return tokenizer
