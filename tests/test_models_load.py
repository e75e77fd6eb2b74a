"""Targets: what is loaded, and what is refused before anything runs."""

import importlib.util
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import features_of, make_tiny_target, make_tiny_tokenizer

from specdemo.errors import UserError
from specdemo.models.load import default_dtype, find_eos_ids, load_target
from specdemo.models.pairs import Pair
from specdemo.models.validate import check_target

pytestmark = pytest.mark.usefixtures("one_thread")


TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def rewrite(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def small(name, **more):
    import transformers

    return getattr(transformers, name)(
        **{
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            ("Qwen3NextConfig", {"layer_types": ["linear_attention", "full_attention"]}),
            "recurrent state",
        ),
        (("MambaConfig", {}), "recurrent state"),
        (("T5GemmaConfig", {}), "encoder-decoder"),
        (("MusicgenConfig", {}), "encoder-decoder"),
    ],
)
def test_targets_that_cannot_forget(config, sentence):
    name, more = config
    import transformers

    whole = name in ("T5GemmaConfig", "MusicgenConfig")
    made = getattr(transformers, name)() if whole else small(name, **more)
    with pytest.raises(UserError, match=sentence) as caught:
        check_target(made, "This model")
    assert "choose a" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("LlamaConfig", {}),
        ("MistralConfig", {"sliding_window": None}),
        ("MistralConfig", {"sliding_window": 16}),
        ("Gemma3TextConfig", {"sliding_window": 16}),
        ("Qwen2Config", {"use_sliding_window": False, "sliding_window": 16}),
        ("Qwen3Config", {}),
    ],
)
def test_targets_that_only_attend(name, more):
    check_target(small(name, **more), "This model")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny target on disk, named by a pair as a local folder."""
    make_tiny_target().save_pretrained(tmp_path / "target")
    make_tiny_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    return tmp_path / "target"


def pair_of(folder):
    return Pair("tiny", "Tiny", "none", "tiny", ({"path": str(folder)},))


def test_loads_a_local_folder(folder, tiny_target):
    loaded = load_target(pair_of(folder), dtype="fp32", device="cpu")
    assert not loaded.model.training and not any(p.requires_grad for p in loaded.model.parameters())
    # the token after an answer in the chat template
    assert loaded.eos_ids == (126,) and loaded.dtype == torch.float32
    assert torch.equal(
        features_of(loaded.model, (0, 1), TEXT)[1], features_of(tiny_target, (0, 1), TEXT)[1]
    )
    assert (
        load_target(pair_of(folder), dtype=torch.bfloat16, device="cpu").model.dtype
        == torch.bfloat16
    )


def test_eos_is_every_id_that_ends_a_text(tiny_target):
    import copy

    model, tokenizer = copy.copy(tiny_target), make_tiny_tokenizer()
    model.generation_config = copy.deepcopy(model.generation_config)
    model.generation_config.eos_token_id = [5, 9]
    tokenizer.eos_token = "t7"
    assert find_eos_ids(model, tokenizer) == (5, 9, 7, 126)
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert find_eos_ids(model, tokenizer) == (5, 9, 7)


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(f.read_bytes()[:-200]),
        lambda f: f.write_bytes(f.read_bytes()[:20]),
        lambda f: f.write_bytes(b""),
        lambda f: f.unlink(),
        lambda f: save_file(
            {k: v for k, v in load_file(f).items() if "layers.1.mlp.up" not in k},
            f,
            {"format": "pt"},
        ),
        lambda f: save_file(
            {k: v * float("nan") if "layers.1.mlp.up" in k else v for k, v in load_file(f).items()},
            f,
            {"format": "pt"},
        ),
    ],
)
def test_damaged_target(folder, damage):
    damage(folder / "model.safetensors")
    with pytest.raises(UserError, match="damaged or incomplete|cannot be read") as caught:
        load_target(pair_of(folder), dtype="fp32", device="cpu")
    assert "\n" not in str(caught.value)
    assert "mend that folder's files" in str(caught.value), "a person's own files are not ours"


def test_what_we_fetched_is_fetched_again(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    ours = tmp_path / "cache" / "targets" / "tiny"
    shutil.copytree(folder, ours)
    (ours / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="; delete that folder to fetch it again, or"):
        load_target(pair_of(ours), dtype="fp32", device="cpu")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "specdemo_block_drafter"},
        {"model_type": "Dream"},
        {"model_type": "qwen3", "architectures": ["DFlashDraftModel"]},
    ],
)
def test_a_drafter_is_no_target(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="holds a drafter, .*; name it with --drafter"):
        load_target(pair_of(folder), dtype="fp32", device="cpu")


def test_a_place_without_a_target_is_named_for_what_it_is(tmp_path):
    (tmp_path / "file.gguf").write_bytes(b"GGUF")
    for place, why in (
        ("file.gguf", "is a file, and GGUF is not read there"),
        ("none", "there is no folder"),
        (".", "has no config.json"),
    ):
        with pytest.raises(UserError, match=why) as caught:
            load_target(pair_of(tmp_path / place), dtype="fp32", device="cpu")
        assert "network" not in str(caught.value) and "safetensors" in str(caught.value)


def test_remote_code_is_never_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    rewrite(
        folder,
        model_type="never_heard_of",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    )
    with pytest.raises(UserError, match="code from a model.s folder is never run"):
        load_target(pair_of(folder), device="cpu")


def test_dtypes_and_devices(folder):
    with pytest.raises(UserError, match="no dtype “int3”"):
        load_target(pair_of(folder), dtype="int3")
    with pytest.raises(UserError, match="not available here"):
        load_target(pair_of(folder), device="nowhere")


def test_bits_without_bitsandbytes_are_refused_before_anything_is_fetched(folder, monkeypatch):
    find = importlib.util.find_spec
    hidden = lambda name: None if name == "bitsandbytes" else find(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(UserError, match="dtype 4bit needs bitsandbytes; install it"):
        load_target(pair_of(folder / "nowhere"), dtype="4bit", device="cpu")


def test_bf16_only_where_the_cpu_has_it(monkeypatch):
    for native, want in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(
            torch.cpu, "_is_avx512_bf16_supported", lambda native=native: native, raising=False
        )
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
        assert default_dtype("cpu") == want
