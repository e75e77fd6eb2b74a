"""Code from a model's folder never runs and nobody is asked whether it may."""

import ast
import builtins
import dataclasses
import io
import json
import shutil
from pathlib import Path

import pytest
from diffusion_lms import save_diffusion_lm
from tiny_models import make_tiny_drafter, make_tiny_tokenizer

import specdemo
from specdemo.engine.load import check_without_weights
from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import load_drafter, read_drafter
from specdemo.models.load import check_target_folder, load_target

MAPS = {
    "config.json": {
        "AutoConfig": "evil.Config",
        "AutoModel": "evil.Model",
        "AutoModelForCausalLM": "evil.Model",
        "AutoModelForMaskedLM": "evil.Model",
    },
    "tokenizer_config.json": {"AutoTokenizer": ["evil.Tokenizer", None]},
}


@pytest.fixture(autouse=True)
def someone_says_yes(monkeypatch):
    """Whoever is asked agrees."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))

    def asked(prompt=""):
        raise AssertionError(f"asked: {prompt}")

    monkeypatch.setattr(builtins, "input", asked)


def poison(folder, witness, changes=None):
    """Code in ``folder`` that writes ``witness``, named by every ``auto_map``."""
    (folder / "evil.py").write_text(
        f"open({str(witness)!r}, 'w').write('ran')\n"
        "from transformers import PreTrainedConfig as Config, PreTrainedModel as Model\n"
        "from transformers import PreTrainedTokenizerFast as Tokenizer\n"
    )
    for name, auto_map in MAPS.items():
        file = folder / name
        content = json.loads(file.read_text()) if file.is_file() else {}
        content |= {"auto_map": auto_map} | (changes or {}).get(name, {})
        file.write_text(json.dumps(content))


def test_a_targets_code_is_not_needed_where_transformers_has_the_model(target_folder, tmp_path):
    folder, witness = shutil.copytree(target_folder, tmp_path / "t"), tmp_path / "witness"
    poison(folder, witness)
    config, _ = check_target_folder(folder, pair_at(folder))
    assert config.model_type == "llama" and not witness.exists()
    assert load_target(pair_at(folder), "fp32", "cpu").model.config.vocab_size == 128
    assert not witness.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"config.json": {"model_type": "evil"}},
        {"tokenizer_config.json": {"tokenizer_class": "EvilTokenizer"}},
    ],
)
def test_a_target_that_needs_its_code_is_refused(target_folder, tmp_path, changes):
    folder, witness = shutil.copytree(target_folder, tmp_path / "t"), tmp_path / "witness"
    poison(folder, witness, changes)
    with pytest.raises(UserError, match=r"code of its own \(auto_map in config.json and tok"):
        check_target_folder(folder, pair_at(folder))
    assert not witness.exists()


def pair_at(folder):
    from specdemo.models.pairs import Pair

    return Pair("t", "T", "none", "tiny", ({"path": str(folder)},))


def test_a_block_drafters_code_is_not_used(tiny_loaded, tiny_target, tmp_path):
    net = make_tiny_drafter(tiny_target, "shared", bound=False)
    folder, witness = save_drafter(net, tmp_path / "d", "#"), tmp_path / "witness"
    make_tiny_tokenizer().save_pretrained(folder)
    poison(folder, witness)
    read_drafter(folder, tiny_loaded)
    assert not witness.exists()


@pytest.mark.parametrize("family", ["Dream", "a2d-qwen3", "mdlm"])
def test_a_diffusion_language_models_code_is_not_used(tiny_loaded, tmp_path, family):
    folder, witness = tmp_path / "d", tmp_path / "witness"
    save_diffusion_lm(folder, family, make_tiny_tokenizer())
    poison(folder, witness)
    pair = dataclasses.replace(tiny_loaded.pair, drafters={"diffusion": str(folder)})
    assert load_drafter(pair, "diffusion", tiny_loaded).config.mask_token_id == 128
    assert not witness.exists()


def test_a_model_class_of_the_folders_own_is_refused(target_folder, tmp_path):
    """transformers knows the config and no causal LM for it."""
    folder, witness = shutil.copytree(target_folder, tmp_path / "t"), tmp_path / "witness"
    poison(folder, witness, {"config.json": {"model_type": "vit"}})
    maps = {"AutoModelForCausalLM": "evil.Model"}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": maps}))
    (folder / "tokenizer_config.json").unlink()
    for attempt in (lambda pair: load_target(pair, "fp32", "cpu"), check_without_weights):
        with pytest.raises(UserError, match="code from a model.s folder is never run"):
            attempt(pair_at(folder))
    assert not witness.exists()


def test_every_call_of_transformers_says_that_no_code_is_trusted():
    calls = []
    for file in (Path(specdemo.__file__).parent).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id.startswith("Auto"):
                said = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                calls.append((file.name, node.lineno, said.get("trust_remote_code")))
    assert len(calls) >= 6 and [call for call in calls if call[2] is not False] == []
