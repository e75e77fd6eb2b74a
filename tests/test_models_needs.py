"""What a pair needs in memory: read from files or models.yaml, compared with what loading takes."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from tiny_models import make_tiny_target, make_tiny_tokenizer
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specdemo.__main__ import main
from specdemo.errors import UserError
from specdemo.models import decoder, needs, pairs
from specdemo.models.block_drafter import BlockDrafter, BlockDrafterConfig
from specdemo.models.linear import Linear
from specdemo.models.load import load_target
from specdemo.models.needs import Memory, fits, needs_of, pair_shapes, refuse_too_large
from specdemo.models.shapes import Shape, listed_shapes, shape_of
from specdemo.paths import ROOT

TINY = Shape(
    parameters=1000, layers=2, hidden=8, kv_heads=2, head_dim=4, vocabulary=50, embeddings=1
)


@pytest.mark.parametrize(
    ("name", "version", "hidden", "inner", "layers", "heads", "kv_heads", "tied"),
    [
        ("Qwen/Qwen3-4B", 3, 2560, 9728, 36, 32, 8, True),
        ("Qwen/Qwen3-8B", 3, 4096, 12288, 36, 32, 8, False),
        ("Qwen/Qwen3-0.6B", 3, 1024, 3072, 28, 16, 8, True),
        ("Qwen/Qwen2.5-7B-Instruct", 2, 3584, 18944, 28, 28, 4, False),
        ("Qwen/Qwen2.5-14B-Instruct", 2, 5120, 13824, 48, 40, 8, False),
    ],
)
def test_listed_sizes_are_those_of_the_published_configs(
    name, version, hidden, inner, layers, heads, kv_heads, tied
):
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

    listed = listed_shapes()[name]
    config = (Qwen3Config if version == 3 else Qwen2Config)(
        vocab_size=151936 if version == 3 else 152064,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
        **({"head_dim": 128} if version == 3 else {}),
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert listed.parameters == sum(p.numel() for p in model.parameters())
    assert listed.embeddings == (1 if embedding is head else 2)
    assert (listed.vocabulary, listed.hidden) == tuple(embedding.shape)
    keys = next(p for n, p in model.named_parameters() if "k_proj.weight" in n)
    assert listed.kv_heads * listed.head_dim == keys.shape[0]
    assert listed.layers == config.num_hidden_layers


@pytest.mark.parametrize(
    ("name", "hidden", "inner", "more"),
    [
        ("z-lab/Qwen3-4B-DFlash-b16", 2560, 9728, {}),
        ("z-lab/Qwen3-8B-DFlash-b16", 4096, 12288, {}),
        (
            "deepseek-ai/dspark_qwen3_8b_block7",
            *(4096, 12288),
            {"pair_rank": 256, "confidence": "state and token"},
        ),
    ],
)
def test_listed_sizes_of_block_drafters(name, hidden, inner, more):
    config = BlockDrafterConfig(
        target_layer_ids=[1, 9, 17, 25, 33],
        num_hidden_layers=5,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        **more,
    )
    with torch.device("meta"):
        net = BlockDrafter(config, None)
    listed = listed_shapes()[name]
    assert listed.parameters == sum(p.numel() for p in net.parameters())
    assert (listed.layers, listed.hidden, listed.embeddings) == (5, hidden, 0)


# published drafters whose config.json nobody here has read; the line about memory leaves them out
UNREAD = {"qwen3-8b-jetspec", "qwen3-8b-dflash2"}


def test_every_pair_says_its_sizes_without_a_file(monkeypatch, tmp_path):
    """And the words of models.yaml agree with them."""
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    for pair in pairs.load_pairs().values():
        shapes = pair_shapes(pair)
        assert shapes.target and (None in shapes.drafters.values()) == (pair.id in UNREAD), pair.id
        if pair.id in UNREAD:
            assert all("its block drafter left out" in fit.text for fit in fits(pair))
        said = re.findall(r"([\d.]+) ([BM])\b(?! to fetch)", pair.size)
        counted = [shapes.target, *shapes.drafters.values()][: len(said)]
        for (number, unit), shape in zip(said, counted, strict=True):
            amount = float(number) * (1e9 if unit == "B" else 1e6)
            assert amount == pytest.approx(shape.parameters, rel=0.05), (pair.id, pair.size)
    listing = (ROOT / "models.yaml").read_text()
    assert not re.search(r"^    hardware:.*\d", listing, re.M), "memory is computed, not typed"


def test_sizes_of_files_that_are_here(target_folder, tmp_path):
    found = shape_of(target_folder)
    config = json.loads((target_folder / "config.json").read_text())
    assert found.layers == config["num_hidden_layers"]
    assert found.vocabulary == config["vocab_size"] and found.hidden == config["hidden_size"]
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target_folder)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert found.embeddings == (1 if tied else 2)
    shipped = shape_of(ROOT / "assets" / "drafters" / "smollm2-135m-block")
    assert shipped.embeddings == 0 and shipped.layers == 4
    shutil.copytree(target_folder, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").write_bytes(b"\xff" * 40)
    assert shape_of(tmp_path / "copy") is None, "a damaged file is no traceback"


def test_names_of_other_families(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=9))
    model.save_pretrained(tmp_path)
    found = shape_of(tmp_path)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert (found.kv_heads, found.head_dim, found.layers, found.embeddings) == (2, 4, 2, 1)


@pytest.mark.parametrize(
    ("free", "total", "verdict"),
    [
        (9e9, 9e9, "fits"),
        (1e8, 9e9, "fits once other programs free memory"),
        (1e8, 2e8, "does not fit"),
    ],
)
def test_verdicts(free, total, verdict):
    memory = Memory("this machine's memory", "cpu", int(total), int(free))
    found = [f for f in fits(pairs.get_pair("smollm2-135m"), [memory]) if f.dtype == "bf16"]
    assert [f.verdict for f in found] == [verdict] and verdict in found[0].text


def test_no_more_is_said_to_fit_than_there_is():
    held, files = 12 * 10**9, 8 * 10**9
    room = Memory("this machine's memory", "cpu", 15 * 10**9, 14 * 10**9)
    fit = needs.Fit("bf16", needs.Needs(held + files, 0, 0, 0, 0, mapped=files), room, "fits")
    assert "about 12.0 GB, beside 8.0 GB of its files' pages, which the system drops" in fit.text
    ample = replace(room, total=30 * 10**9)
    assert "about 20.0 GB, of 30.0 GB" in replace(fit, memory=ample).text


def test_a_gpu_has_weights_once_and_bits_are_counted():
    target = listed_shapes()["Qwen/Qwen3-8B"]
    whole = needs_of(target, {}, "bf16", "gpu")
    assert whole.target == 2 * target.parameters
    # 16.4 GB, and in 4 bits 6.1: embedding and head stay as they are
    four = needs_of(target, {}, "4bit", "gpu").target
    assert four == pytest.approx(0.516 * target.body + 2 * target.embedded, rel=1e-3)
    assert needs_of(target, {"block": TINY}, "bf16", "gpu").drafters == 2 * TINY.parameters
    # keys and values of two lanes: 36 layers, 8 heads of 128, 2 bytes, 2048 slots
    assert whole.caches == 2 * 2 * 36 * 8 * 128 * 2 * 2048


def test_dtypes_are_those_that_can_run_here(monkeypatch):
    pair = pairs.get_pair("qwen3-8b")
    cpu = Memory("this machine's memory", "cpu", 10**12, 10**12)
    for found, expected in ((None, ["bf16"]), (object(), ["bf16", "4bit", "8bit"])):
        monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name, found=found: found)
        assert needs.usable_dtypes(pair, [cpu]) == expected
    small = pairs.get_pair("smollm2-135m")
    gpu = Memory("a GPU", "gpu", 10**12, 10**12)
    assert needs.usable_dtypes(small, [cpu]) == ["bf16", "fp32", "int4"]
    assert needs.usable_dtypes(small, [gpu, cpu]) == ["bf16", "fp32"]
    assert {f.memory.name for f in fits(small, [gpu, cpu])} == {"a GPU"}
    assert all("computed and not measured" in f.text for f in fits(small, [gpu, cpu]))
    both = [f.memory.name for f in fits(small, [gpu, cpu], everywhere=True) if f.dtype == "bf16"]
    assert both == ["a GPU", "this machine's memory", "all of it together (--device auto)"]


def test_several_memories_hold_a_target_together(monkeypatch):
    gpus = [Memory(f"GPU {i}", "gpu", 40 * 10**9, 40 * 10**9) for i in range(2)]
    own = Memory("this machine's memory", "cpu", 10**9, 10**9)
    monkeypatch.setattr(needs, "machine_memory", lambda: [*gpus, own])
    pair = pairs.get_pair("qwen2.5-14b-dream")
    with pytest.raises(UserError, match="does not fit: about .*GPU 0"):
        refuse_too_large(pair, "bf16")
    refuse_too_large(pair, "bf16", "auto")


def test_a_pair_that_cannot_fit_is_refused_in_a_sentence(monkeypatch):
    tight = Memory("this machine's memory", "cpu", 20 * 10**9, 10**9)
    monkeypatch.setattr(needs, "machine_memory", lambda: [tight])
    with pytest.raises(UserError, match=r"Qwen2.5-32B .* does not fit: about .*smaller pair"):
        refuse_too_large(pairs.get_pair("qwen2.5-32b-dream"), "bf16")
    refuse_too_large(pairs.get_pair("smollm2-135m"), "fp32")


def test_the_command_lists_every_pair_and_fetches_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.setattr("specdemo.models.fetch._from_hub", lambda *a: pytest.fail("fetched"))
    assert main(["models", "--fits", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [f["dtype"] for f in listed["smollm2-135m"]] == ["bf16", "fp32", "int4"]
    for fit in listed["qwen3-8b"]:  # of 4 and 8 bits, too, where bitsandbytes is installed
        parts, least = fit["needs"], {"4bit": 5e9, "8bit": 8e9}.get(fit["dtype"], 16e9)
        assert parts["target"] > least and parts["total"] > parts["target"] + parts["drafters"]
    assert main(["models", "--fits"]) == 0
    shown = capsys.readouterr().out
    assert "qwen3-8b\n  bf16: " in shown and "caches of both lanes" in shown
    assert re.search(r"on a GPU \(computed, not measured\): about \d+.\d GB in bf16, \d", shown)


@pytest.mark.parametrize(
    ("entry", "words"),
    [("{layers: 2}", "“parameters” is wrong"), ("7", "a shape has"), ("{x: 1}", "a shape has")],
)
def test_a_shape_that_is_not_whole_is_refused(tmp_path, entry, words):
    file = tmp_path / "models.yaml"
    file.write_text(f"pairs: {{}}\nshapes:\n  a/b: {entry}\n")
    with pytest.raises(UserError, match=words):
        listed_shapes(file)


# -- what loading really takes ---------------------------------------------------------------------


class Live(TorchDispatchMode):
    """Bytes of the storages that are there, and the most there were."""

    def __init__(self, *given):
        super().__init__()
        self.storages, self.peak = {}, 0
        self.note(given)

    def note(self, made):
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.storages = {k: s for k, s in self.storages.items() if not s[0].expired()}
        self.peak = max(self.peak, self.now)

    @property
    def now(self):
        return sum(size for ref, size in self.storages.values() if not ref.expired())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.note(out)
        return out


class Layout(Linear):
    """A product that keeps a layout of its own and not the weight, as packed ones do."""

    def __init__(self, weight, *more):
        self.layout, self.weight = weight.clone(), None


class Plain(Linear):
    """A product that keeps the weight as it is, as on a GPU."""

    def __init__(self, weight, *more):
        self.weight = weight


@pytest.mark.parametrize(("product", "copies"), [(Plain, 0), (Layout, 1)])
def test_fusing_weights_keeps_no_second_copy(monkeypatch, product, copies):
    """The most at one time is a layer more than what stays; what stays is the model, and the
    products' own layout where they have one.
    """
    monkeypatch.setattr(decoder, "Linear", product)
    model = make_tiny_target(layers=6, hidden=128)
    body = list(model.model.layers)
    weights = sum(p.nbytes for layer in body for p in layer.parameters() if p.dim() > 1)
    given = [p.detach() for p in model.parameters()]
    before = sum(p.nbytes for p in given)
    shape = decoder.DecoderShape(4, 2, 32, 1e-5)
    live = Live(given)
    given.clear()
    with live:
        fused = [
            decoder.DecoderLayer.from_module(
                layer, i, shape, torch.device("cpu"), torch.float32, shared=True
            )
            for i, layer in enumerate(body)
        ]
    assert live.now == before + copies * weights and len(fused) == 6
    assert live.peak <= live.now + weights / 6


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_stored_bits_are_what_bitsandbytes_keeps(bits, tmp_path):
    pytest.importorskip("bitsandbytes")
    make_tiny_target(layers=2, hidden=512).save_pretrained(tmp_path)
    make_tiny_tokenizer().save_pretrained(tmp_path)
    pair = pairs.Pair("tiny", "Tiny", "none", "tiny", ({"path": str(tmp_path)},))
    held = {}
    for weight in load_target(pair, bits, "cpu").model.parameters():
        state = getattr(weight, "quant_state", None)
        inner = getattr(state, "state2", None)
        parts = [(weight, "data"), (weight, "SCB"), (state, "absmax"), (inner, "absmax")]
        for tensor in (getattr(owner, name, None) for owner, name in parts):
            if tensor is not None:
                storage = tensor.untyped_storage()
                held[storage.data_ptr()] = storage.nbytes()
    found = needs_of(shape_of(tmp_path), {}, bits, "cpu")
    assert sum(held.values()) == pytest.approx(found.target, rel=0.02)


MEASURE = """
import gc, json, sys, warnings
import psutil, torch
warnings.simplefilter("ignore")
from specdemo.engine import load_engine, race
from specdemo.request import Request
engine = load_engine("smollm2-135m", sys.argv[1])
for _ in race(engine, Request("Count to ten.", "block", max_new_tokens=24)):
    pass
held = {}
for one in gc.get_objects():
    if type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type == "cpu":
        try:
            storage = one.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError):  # oneDNN's own layout
            held[id(one)] = one.numel() * one.element_size()
# not ru_maxrss, which begins with what the process had that started this one
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"tensors": sum(held.values()), "peak": peak}))
"""


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "int4"])
def test_the_estimate_is_what_the_real_pair_takes(dtype):
    """Within 15 %: the tensors that a loaded pair holds, and the most memory of its process."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, dtype], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    measured = json.loads(run.stdout.splitlines()[-1])
    (fit,) = [f for f in fits(pairs.get_pair("smollm2-135m")) if f.dtype == dtype]
    held = fit.needs.target + fit.needs.drafters
    assert measured["tensors"] == pytest.approx(held, rel=0.15), (measured, fit.text)
    assert measured["peak"] == pytest.approx(fit.needs.total, rel=0.15), (measured, fit.text)
