"""SpecDiff's pair end to end, on tiny weights: a GPT-2 target and an MDLM drafter without tokenizer
files, named in a models.yaml of one's own, raced from the command line.
"""

import functools

import pytest
import torch
from diffusion_lms import config_of, make_weights, save_diffusion_lm

from specdemo.__main__ import main
from specdemo.traces import load_trace

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models_yaml(tmp_path_factory):
    """Both checkpoints on disk, and the file that names them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("specdiff")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {letter: i for i, letter in enumerate([*letters, "<|endoftext|>"])}
    made = Tokenizer(models.BPE(ids, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=end, eos_token=end, unk_token=end
    ).save_pretrained(root / "gpt2")
    torch.manual_seed(3)
    shape = GPT2Config(
        vocab_size=257, n_embd=32, n_layer=2, n_head=4, n_positions=256,
        bos_token_id=256, eos_token_id=256,
    )  # fmt: skip
    target = GPT2LMHeadModel(shape).eval()
    for p in target.parameters():
        p.data.mul_(4 if p.dim() > 1 else 1)
    target.save_pretrained(root / "gpt2")
    weights = make_weights(config_of("mdlm", vocab_size=258))
    save_diffusion_lm(root / "mdlm", "mdlm", None, weights=weights, vocab_size=258)
    (root / "models.yaml").write_text(
        "pairs:\n  tiny: {title: T, license: L, size: S, target: {path: gpt2}, dtypes: [fp32],"
        " drafters: {mdlm: mdlm}}\n"
    )
    return root / "models.yaml"


@pytest.mark.parametrize(
    "words, reveal",
    [
        (["--method", "specdiff", "--param", "steps=3"], "random"),
        (["--method", "specdiff", "--rule", "ratio", "--temperature", "1"], "random"),
    ],
)
def test_the_pair_of_the_paper_races(models_yaml, tmp_path, monkeypatch, capsys, words, reveal):
    from specdemo.engine import load

    monkeypatch.setattr(load, "calibrate", functools.partial(load.calibrate, seconds=0.0))
    monkeypatch.setenv("SPECDEMO_MODELS", str(models_yaml))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    trace = tmp_path / "trace.json"
    race = ["race", "Once upon a time", "--pair", "tiny", "--dtype", "float32", "--device", "cpu"]
    more = ["--max-new-tokens", "24", "--trace", str(trace)]
    assert main([*race, *words, *more]) == 0
    said = capsys.readouterr().out
    assert ("exactly the same tokens" in said) == ("ratio" not in words)
    start = load_trace(trace)[0]
    assert start.params["reveal"] == reveal
    assert start.weights == (
        "mdlm weights (mdlm), a stand-alone diffusion language model (MDLM): every pass reads the"
        " whole text again, as its attention goes both ways"
    )
