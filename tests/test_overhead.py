"""``device --shape``: random weights whose text is known beforehand, through the loop of races."""

import json
from dataclasses import replace

import pytest
import torch
from device_rounds import rounds_of
from tiny import engine_for
from transformers import Qwen3Config

from specdemo.__main__ import main
from specdemo.bench import overhead as module
from specdemo.bench import shapes
from specdemo.bench.overhead import overhead
from specdemo.bench.shapes import SHAPES, parameters, random_pair
from specdemo.engine import Engine
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.needs import Memory

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tiny_shape(monkeypatch):
    config = Qwen3Config(
        vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    monkeypatch.setitem(SHAPES, "tiny", config)


@pytest.fixture(params=["host", "device"])
def engine(request) -> Engine:
    """Rounds that the host decides, or captured ones (here run step by step)."""
    loaded = random_pair("tiny", torch.float32, CPU)
    target = Target(loaded.model)
    engine = replace(engine_for(target, widths=(1, 2, 4, 8, 16)), loaded=loaded)
    return replace(engine, rounds=rounds_of(target)) if request.param == "device" else engine


@pytest.mark.parametrize("wanted", [1.0, 3.5, 16.0])
def test_drafts_bring_as_many_tokens_as_are_wanted(engine, wanted, monkeypatch):
    outputs, lane_of = [], module._lane

    def keep(*args):
        outputs.append(lane_of(*args))
        return outputs[-1]

    monkeypatch.setattr(module, "_lane", keep)
    found = overhead(engine, "tiny", wanted, 97)
    forced, plain = found["forced"], found["plain"]
    assert plain["tokens_per_round"] == 1 and plain["rounds"] == 96
    assert abs(forced["tokens_per_round"] - wanted) <= 0.05 * wanted
    texts = {tuple(lane.output) for lane in outputs}
    assert len(texts) == 1 and len(set(texts.pop())) == 1  # the last token of the prompt for ever
    assert forced["rows"] == 16
    for one in (plain, forced):
        assert 0 < one["ms_inside_passes"]
        inside, outside = one["ms_inside_passes"], one["ms_outside_passes"]
        assert inside + outside == pytest.approx(one["ms_per_round"])
    assert not {"verify", "hidden"} & (vars(engine.target).keys() | vars(net_of(engine)).keys())


def net_of(engine):
    return engine.loaded.networks["block"]


def test_time_outside_passes_is_told_apart_from_that_inside(monkeypatch):
    """By a clock that a pass moves by 3 and the choice of its tokens by 1."""
    loaded, now = random_pair("tiny", torch.float32, CPU), [0.0]
    target = Target(loaded.model)
    engine = replace(engine_for(target, widths=(1, 2, 16)), loaded=loaded)

    def slow(call, seconds):
        def run(*args, **more):
            now[0] += seconds
            return call(*args, **more)

        return run

    monkeypatch.setattr(Target, "verify", slow(Target.verify, 3.0))
    monkeypatch.setattr("specdemo.engine.lane.accept", slow(module_accept(), 1.0))
    monkeypatch.setattr(module, "clock_now", lambda device: now[0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    plain = overhead(engine, "tiny", 2.0, 9)["plain"]
    assert plain["ms_inside_passes"] == 3000 and plain["ms_outside_passes"] == 1000
    assert plain["share_outside"] == 0.25 and plain["tokens_per_second"] == 0.25


def module_accept():
    from specdemo.engine import lane

    return lane.accept


def test_the_command_prints_and_writes_it(tmp_path, capsys):
    out = tmp_path / "report.json"
    words = ["device", "--shape", "tiny", "--device", "cpu", "--dtypes", "fp32"]
    words += ["--max-new-tokens", "12", "--force-tokens-per-round", "2", "--out", str(out)]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(out.read_text()) and report["dtype"] == "fp32"
    assert report["parameters"] == parameters(SHAPES["tiny"]) > 2 * 512 * 64


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--shape", "gpt-5"], "There is no shape “gpt-5”; shapes are smollm2-135m, "),
        (["--force-tokens-per-round", "2"], "goes with --shape"),
        (["--shape", "tiny", "--graphs"], "no --graphs"),
        (["--shape", "tiny", "--dtypes", "int4"], "one of the number types"),
        (["--shape", "tiny", "--device", "cpu", "--dtypes", "fp32",
          "--force-tokens-per-round", "17"], "between 1 and 16, not 17"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_sentence(words, sentence, capsys):
    assert main(["device", *words]) == 1
    assert sentence in capsys.readouterr().err


def test_a_shape_that_does_not_fit_is_refused_with_the_memory_it_needs(monkeypatch):
    monkeypatch.setattr(shapes, "own_memory", lambda: Memory("own", "cpu", 2**34, 2**30))
    with pytest.raises(UserError, match=r"llama3-8b needs 3\d\.\d GiB .* has 1\.0 GiB free"):
        random_pair("llama3-8b", torch.bfloat16, CPU)


@pytest.mark.parametrize(("name", "billions"), [
    ("smollm2-135m", 0.135), ("qwen3-0.6b", 0.60), ("qwen3-4b", 4.02), ("qwen3-8b", 8.19),
    ("llama3-8b", 8.03),
])  # fmt: skip
def test_shapes_have_the_size_that_their_names_say(name, billions):
    with torch.device("meta"):
        model = shapes.AutoModelForCausalLM.from_config(SHAPES[name])
    count = sum(p.numel() for p in model.parameters())
    assert count / 1e9 == pytest.approx(billions, rel=0.01)
