"""The embedded pair itself: fetched, loaded, drafted with. Uses the same cache as the app (about 93
MB the first time).
"""

from dataclasses import replace

import pytest
import torch
from tiny_models import features_of

from specdemo.engine import race
from specdemo.models.drafters import load_drafter
from specdemo.models.pairs import ROOT, get_pair
from specdemo.request import Request

PROMPT = (
    "A farmer has 12 cows. Each cow gives 8 litres of milk a day. How many litres does he get in a"
    " week? Explain step by step."
)


def encode(loaded, text=PROMPT):
    return loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]


@pytest.fixture(scope="module")
def answer(loaded_fp32):
    """(prompt length, ids of prompt and greedy answer)"""
    ids = encode(loaded_fp32)
    with torch.no_grad():
        return (
            ids.shape[1],
            loaded_fp32.model.generate(ids, max_new_tokens=48, do_sample=False)[0].tolist(),
        )


def tokens_per_round(net, features, prompt, ids, shift=0):
    """Replay a greedy answer: blocks drafted at each anchor, kept as far as they agree. ``shift``
    gives each token another's features.
    """
    cache, position, rounds = net.new_cache(len(ids)), prompt, 0
    features = features.roll(shift, 0)
    while position < len(ids) - 1:
        net.extend(cache, features[cache.length : position], cache.length)
        block = torch.full((1, net.block_size), -1)
        block[0, 0] = ids[position]
        drafts = net.vocab_ids[
            net.logits(net.hidden(block, position, cache))[0, 1:].argmax(-1)
        ].tolist()
        kept = next(
            (
                k
                for k, (a, b) in enumerate(zip(drafts, ids[position + 1 :], strict=False))
                if a != b
            ),
            len(ids) - 1 - position,
        )
        position, rounds = position + min(kept, net.block_size - 1) + 1, rounds + 1
    return (len(ids) - 1 - prompt) / rounds


def test_the_target_is_itself(loaded_fp32, answer):
    assert loaded_fp32.eos_ids == (2,) and loaded_fp32.model.config.num_hidden_layers == 30
    assert "week" in loaded_fp32.tokenizer.decode(answer[1][answer[0] :])


def test_the_shipped_drafter_drafts(loaded_fp32, answer):
    net = load_drafter(loaded_fp32.pair, "block", loaded_fp32)
    assert (
        net.weights.startswith("block weights")
        and 2 in net.vocab_ids
        and 8_000 <= len(net.vocab_ids) <= 20_000
    )
    prompt, ids = answer
    features, _ = features_of(loaded_fp32.model, net.layer_ids, ids)
    right = tokens_per_round(net, features, prompt, ids)
    assert right > 1.5, right  # a wrong layout, tap or position would sit at about 1 (C46)
    taps = tuple(i + 1 for i in net.layer_ids)
    shifted, _ = features_of(loaded_fp32.model, taps, ids)
    assert tokens_per_round(net, shifted, prompt, ids) < right  # taps one layer off (C45)
    assert tokens_per_round(net, features, prompt, ids, shift=5) < right


def test_bf16_drafts_as_well_as_fp32(loaded_fp32, loaded_bf16, answer):
    prompt, ids = answer
    rates = []
    for loaded in (loaded_fp32, loaded_bf16):
        net = load_drafter(loaded.pair, "block", loaded)
        rates.append(
            tokens_per_round(net, features_of(loaded.model, net.layer_ids, ids)[0], prompt, ids)
        )
    assert rates[1] > 0.9 * rates[0], rates


def test_transformers_runs_the_drafter_too(loaded_fp32, answer):
    """An outside witness of losslessness: transformers' own loop with our network writes the same
    text.
    """
    net = load_drafter(loaded_fp32.pair, "block", loaded_fp32)
    with torch.no_grad():
        out = loaded_fp32.model.generate(
            encode(loaded_fp32),
            max_new_tokens=48,
            do_sample=False,
            assistant_model=net,
            speculation_type="dflash",
        )
    assert out[0].tolist() == answer[1]


def test_shipped_files_are_small():
    files = [f for f in (ROOT / "assets" / "drafters").rglob("*") if f.is_file()]
    assert files and all(f.stat().st_size < 10_000_000 for f in files)
    for folder in {f.parent for f in files}:
        assert (folder / "README.md").is_file() and (folder / "config.json").is_file()


@pytest.mark.parametrize("method", ["specdiff", "ar-draft"])
def test_the_drafters_that_read_the_text_alone_draft(engine_bf16, method):
    pair = get_pair("smollm2-135m-alone")
    loaded = replace(engine_bf16.loaded, pair=pair, networks={})
    engine = replace(engine_bf16, loaded=loaded, pace=None)
    start, *_, done = race(engine, Request(PROMPT, method, max_new_tokens=32))
    assert done.result["identical"] and not start.borrowed
    assert done.result["spec"]["tokens_per_round"] > 1.3
