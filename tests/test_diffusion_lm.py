"""Stand-alone diffusion language models: each family's published layout computes what its published
code computes, with and without its cache, and drafts token-identically.
"""

import dataclasses

import pytest
import torch
from device_rounds import device_engine, finish, lane_of, written
from diffusion_lms import (
    CONFIGS,
    MASK_ID,
    config_of,
    expected_draft_logits,
    make_weights,
    save_diffusion_lm,
)
from tiny import PROMPT, engine_for, write

from specdemo.drafters import METHODS
from specdemo.engine.target import Target
from specdemo.models.block_drafter import MASK
from specdemo.models.drafters import load_drafter
from specdemo.models.layers import Rope, RopeTable

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = [3 + i * 37 % 120 for i in range(61)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder a family, written once."""
    from tiny_models import make_tiny_tokenizer

    root = tmp_path_factory.mktemp("diffusion")
    return {
        family: save_diffusion_lm(root / family.replace(" ", "-"), family, make_tiny_tokenizer())
        for family in CONFIGS
    }


def loaded_with(tiny_loaded, **drafters):
    """``tiny_loaded`` whose pair names these drafters."""
    named = {kind: str(place) for kind, place in drafters.items()}
    return dataclasses.replace(
        tiny_loaded, pair=dataclasses.replace(tiny_loaded.pair, drafters=named), networks={}
    )


def network(tiny_loaded, folders, family):
    loaded = loaded_with(tiny_loaded, diffusion=folders[family])
    return load_drafter(loaded.pair, "diffusion", loaded)


def draft_logits(net, cache, text, slots):
    """The logits ``[slots, 128]`` behind ``text``."""
    net.read(cache, text)
    block = torch.tensor([[text[-1]] + [MASK] * slots])
    return net.logits(net.hidden(block, len(text) - 1, cache)[0, 1:])


def error(found, wanted):
    """The largest difference of finite logits."""
    known = found.isfinite()
    return float((found - wanted[:, : found.shape[1]])[known].abs().max())


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_are_those_of_the_published_code(tiny_loaded, folders, family):
    net = network(tiny_loaded, folders, family)
    weights, config = make_weights(config_of(family)), config_of(family)
    cache = net.new_cache(256)
    # texts that end within a block, at its end and behind it, growing by one and by many
    for length in (1, 2, 7, 8, 9, 12, 13, 31, 32, 50):
        found = draft_logits(net, cache, TEXT[:length], 7)
        wanted = expected_draft_logits(config, weights, TEXT[:length], 7)
        assert error(found, wanted) < 1e-4, length
        # a second pass behind the same text, as a second denoising step takes
        assert error(draft_logits(net, cache, TEXT[:length], 7), wanted) < 1e-4, length
        assert torch.equal(found.argmax(-1), wanted[:, :128].argmax(-1))
    # a fresh cache, which reads the whole text at once, says the same
    again = draft_logits(net, net.new_cache(256), TEXT[:50], 7)
    assert error(again, wanted) < 1e-4


@pytest.mark.parametrize("family", ["Dream", "a2d-qwen3", "a2d-llama"])
def test_logits_are_those_of_transformers_layers_without_a_causal_mask(
    tiny_loaded, folders, family
):
    """The published models subclass or copy these; only who reads whom differs."""
    from safetensors.torch import load_file
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    kinds = {
        "Dream": (Qwen2Config, Qwen2ForCausalLM),
        "a2d-qwen3": (Qwen3Config, Qwen3ForCausalLM),
        "a2d-llama": (LlamaConfig, LlamaForCausalLM),
    }
    made, model = kinds[family]
    config = {k: v for k, v in config_of(family).items() if k not in ("model_type", "auto_map")}
    theirs = model(made(**config, attn_implementation="sdpa")).eval()
    weights = load_file(folders[family] / "model.safetensors")
    missing, unknown = theirs.load_state_dict(weights, strict=False)
    assert not unknown and set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    text, slots = TEXT[:23], 6
    ids = torch.tensor([text + [MASK_ID] * slots])
    everybody = torch.zeros(1, 1, ids.shape[1], ids.shape[1])
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=everybody).logits[0]
    first = len(text) - (family == "Dream")
    net = network(tiny_loaded, folders, family)
    found = draft_logits(net, net.new_cache(64), text, slots)
    assert error(found, wanted[first : first + slots]) < 1e-4


@pytest.mark.parametrize("family", CONFIGS)
def test_bf16_is_near(tiny_loaded, folders, family):
    exact = network(tiny_loaded, folders, family)
    half = network(dataclasses.replace(tiny_loaded, dtype=torch.bfloat16), folders, family)
    wanted = draft_logits(exact, exact.new_cache(64), TEXT[:40], 7)
    found = draft_logits(half, half.new_cache(64), TEXT[:40], 7)
    seen = wanted.isfinite()
    assert (found.isfinite() == seen).all()
    assert float((found.float() - wanted)[seen].std() / wanted[seen].std()) < 0.1


@pytest.mark.parametrize("family", CONFIGS)
def test_branches_with_known_tokens_are_each_their_own_text(tiny_loaded, folders, family):
    net = network(tiny_loaded, folders, family)
    weights, config, mask = make_weights(config_of(family)), config_of(family), MASK
    cache, text = net.new_cache(256), TEXT[:45]
    net.read(cache, text)
    blocks = torch.tensor([[text[-1], 5, 6, mask, mask, mask], [text[-1], 9] + [mask] * 4])
    found = net.logits(net.hidden(blocks, len(text) - 1, cache))
    for row, shown in zip(found, ([5, 6], [9]), strict=True):
        masks = 5 - len(shown)
        wanted = expected_draft_logits(config, weights, text + shown, masks)
        assert error(row[-masks:], wanted) < 1e-4


def mutants(config):
    """Ways to compute something else."""
    yield dataclasses.replace(config, shifted=not config.shifted)
    yield dataclasses.replace(config, mask_token_id=config.mask_token_id - 3)
    yield dataclasses.replace(config, block=None if config.block else 4)
    yield dataclasses.replace(config, rope_parameters={"rope_type": "default", "rope_theta": 50.0})


@pytest.mark.parametrize("family", CONFIGS)
def test_another_shift_mask_direction_or_rope_would_be_seen(tiny_loaded, folders, family):
    net = network(tiny_loaded, folders, family)
    wanted = expected_draft_logits(config_of(family), make_weights(config_of(family)), TEXT[:30], 7)
    assert error(draft_logits(net, net.new_cache(256), TEXT[:30], 7), wanted) < 1e-4
    for config in mutants(net.config):
        net.config = config
        net.rope_table = RopeTable(Rope(config), net.head.device, net.head.dtype)
        off = error(draft_logits(net, net.new_cache(256), TEXT[:30], 7), wanted)
        assert off > 0.05, config


@pytest.mark.parametrize("family", ["sdar", "Fast_dLLM_Qwen", "bd3lm"])
def test_finished_blocks_are_read_once(tiny_loaded, folders, family):
    net = network(tiny_loaded, folders, family)
    cache, seen = net.new_cache(256), []
    run = net._pass
    net._pass = lambda ids, known, stored: (
        seen.append((known, ids.numel())),
        run(ids, known, stored),
    )[1]
    block = net.config.block
    for length in (50, 51, 55):
        draft_logits(net, cache, TEXT[:length], 3)
    whole = [(length - 1) // block * block for length in (50, 51, 55)]
    assert cache.stored.length == whole[-1]
    assert [known for known, _ in seen] == [0, whole[0], whole[1]]
    assert all(known + rows <= 55 + 3 + block for known, rows in seen)


@pytest.mark.parametrize("family", ["mdlm", "bd3lm", "sdar", "Dream"])
def test_a_text_longer_than_the_network_reads_keeps_its_end(tiny_loaded, tmp_path, family):
    from tiny_models import make_tiny_tokenizer

    key = "model_length" if "hidden_dim" in CONFIGS[family] else "max_position_embeddings"
    place = save_diffusion_lm(tmp_path / "short", family, make_tiny_tokenizer(), **{key: 48})
    loaded = loaded_with(tiny_loaded, diffusion=place)
    net = load_drafter(loaded.pair, "diffusion", loaded)
    text = [3 + i * 29 % 120 for i in range(150)]
    cache, config = net.new_cache(200), config_of(family)
    for length in range(30, 150, 7):
        found = draft_logits(net, cache, text[:length], 5)
        rest = text[cache.start : length]
        assert len(rest) + 5 <= 48 and (length < 43 or len(rest) > 15)
        assert cache.start % (net.config.block or 1) == 0
        wanted = expected_draft_logits(config, make_weights(config), rest, 5)
        assert error(found, wanted) < 1e-4, length


def test_a_long_prompt_is_read_in_chunks_of_whole_blocks(tiny_loaded, tmp_path):
    from tiny_models import make_tiny_tokenizer

    longer = {"max_position_embeddings": 1024, "block_size": 12}
    place = save_diffusion_lm(tmp_path / "long", "sdar", make_tiny_tokenizer(), **longer)
    loaded = loaded_with(tiny_loaded, diffusion=place)
    net = load_drafter(loaded.pair, "diffusion", loaded)
    text, cache, rows = [3 + i * 29 % 120 for i in range(631)], net.new_cache(700), []
    run = net._pass
    net._pass = lambda ids, *more: (rows.append(ids.numel()), run(ids, *more))[1]
    found = draft_logits(net, cache, text, 7)
    assert rows == [252, 252, 120, 24]  # 52 blocks of 12, then the anchor's and the one behind
    config = config_of("sdar", **longer)
    wanted = expected_draft_logits(config, make_weights(config), text, 7)
    assert error(found, wanted) < 1e-4


# -- in a race -------------------------------------------------------------------------------------

METHOD_RUNS = [
    ("specdiff", {"gamma": 6, "steps": 1}),
    ("specdiff", {"gamma": 6, "steps": 3}),
    ("specdiff2", {"gamma": 5, "drafts": 4}),
    ("diffuspec", {}),
    ("tree", {}),
    ("best", {}),
    ("block", {}),
    ("d2sd", {"gamma": 4, "branches": 3}),
]


# every method on three that differ most, two of them on every family
RACES = [
    (family, *run)
    for family in CONFIGS
    for run in METHOD_RUNS
    if family in ("Dream", "Fast_dLLM_Qwen", "mdlm") or run in (METHOD_RUNS[1], METHOD_RUNS[7])
]


@pytest.mark.parametrize("family, method, params", RACES)
def test_every_method_writes_the_targets_own_text(
    tiny_loaded, tiny_target, folders, family, method, params
):
    engine = engine_for(Target(tiny_target))
    loaded = loaded_with(tiny_loaded, diffusion=folders[family])
    made = METHODS[method]
    assert made.refuse_pair(loaded.pair) is None
    drafter = made.build(loaded, made.parse_params(params))
    assert drafter.layer_ids == () and "stand-alone diffusion language model" in drafter.weights
    lane = write(engine, drafter, max_new=16)
    assert lane.output == write(engine, max_new=16).output
    assert lane.drafting_rounds > 3


def test_two_networks_draft_under_d2sd(tiny_loaded, tiny_target, folders):
    engine = engine_for(Target(tiny_target))
    loaded = loaded_with(tiny_loaded, diffusion=folders["Dream"], vp=folders["mdlm"])
    made = METHODS["d2sd"]
    drafter = made.build(loaded, made.parse_params({"gamma": 4, "branches": 3}))
    assert drafter.first.net.config.family == "Dream"
    assert drafter.second.net.config.family == "MDLM"
    assert write(engine, drafter, max_new=16).output == write(engine, max_new=16).output


@pytest.mark.parametrize("family", CONFIGS)
def test_ids_the_target_does_not_have_are_never_drafted(tiny_loaded, folders, family):
    net = network(tiny_loaded, folders, family)
    cache = net.new_cache(64)
    logits = draft_logits(net, cache, PROMPT, 4)
    assert logits.shape == (4, 128) and net.config.mask_token_id == MASK_ID


@pytest.mark.parametrize("family", ["Dream", "sdar"])
@pytest.mark.parametrize("method", ["tree", "best", "block", "specdiff", "d2sd"])
def test_an_engine_whose_rounds_run_on_the_device_drafts_with_it(
    tiny_loaded, folders, family, method
):
    """Such a drafter has no pass that is captured: its drafts are made by the host's way."""
    engine = device_engine(net=False)
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"diffusion": str(folders[family])})
    loaded = dataclasses.replace(tiny_loaded, model=engine.loaded.model, pair=pair, networks={})
    made = METHODS[method]
    drafter = made.build(loaded, made.parse_params({"gamma": 6}))
    lane = lane_of(engine, method, new=16, drafter=drafter)
    assert lane.graphs.draft is None
    assert finish(lane) == written(engine, new=16) and lane.drafting_rounds > 3
