"""Everything that computes, on a made-up accelerator: nothing is left behind on the host, and
nothing waits where it need not.
"""

import argparse
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tiny_models import make_tiny_target
from tiny_training import periodic_corpus

from specdemo.bench import device
from specdemo.bench.made_up_gpu import Pretended, pretended_gpu
from specdemo.drafters import METHODS
from specdemo.engine import Engine, race
from specdemo.engine.calibrate import draft_pass_ms
from specdemo.engine.check_target import check_against
from specdemo.engine.cost import CostModel
from specdemo.engine.target import Target
from specdemo.models.load import load_target
from specdemo.models.pairs import get_pair
from specdemo.request import Request, Sampling
from specdemo.training import corpus, estimate, train
from specdemo.training.data import write_shard
from specdemo.training.markov import with_head
from specdemo.training.new_drafter import new_drafter
from specdemo.training.settings import Settings
from specdemo.training.trainer import Trainer

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def gpu():
    with pretended_gpu() as waits:
        yield waits


# -- the instrument itself -------------------------------------------------------------------------


def test_it_is_as_strict_as_a_gpu(gpu):
    there, here = torch.arange(3.0, device="cuda"), torch.arange(3.0)
    assert (
        isinstance(there + 1, Pretended)
        and there.device.type == "cuda"
        and (there + torch.tensor(2.0)).tolist() == [2, 3, 4]
    )
    for mix in (
        lambda: there + here,
        lambda: torch.cat((there, here)),
        lambda: torch.stack((here, there)),
        lambda: torch.where(here > 1, there, 0),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mix()
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    gpu.clear()
    assert (there + here.to("cuda")).cpu().tolist() == [0, 2, 4] and gpu == ["to the host"]
    for mode in (torch.enable_grad, torch.inference_mode):
        gpu.clear()
        with mode():
            for wait in (
                lambda: float(there[0]),
                lambda: there[1].item(),
                lambda: there[there > 1],
                lambda: (there > 1).nonzero(),
                lambda: bool(there.any()),
            ):
                wait()
        assert len(gpu) == 5
    gpu.clear()
    twin = torch.empty(3)
    twin.copy_(there, non_blocking=True)
    assert not gpu and twin.tolist() == [0, 1, 2]
    twin.copy_(there)
    torch.cuda.synchronize()
    torch.cuda.Event().synchronize()
    assert len(gpu) == 3
    torch.cuda.set_sync_debug_mode("error")
    torch.cuda.Event().synchronize()
    for wait in (torch.cuda.synchronize, there[0].item, lambda: here.to("cuda")):
        with pytest.raises(RuntimeError, match="synchronizing"):
            wait()
    torch.cuda.set_sync_debug_mode("default")


def test_its_graphs_run_the_captured_operators_on_the_captured_buffers(gpu):
    """What the device holds may change between replays, what the host said may not."""
    length, rows = torch.zeros(1, dtype=torch.long, device="cuda"), torch.arange(4.0, device="cuda")
    out, host = torch.zeros(4, device="cuda"), 3

    def step():
        fresh = torch.zeros(4, device="cuda").index_add_(0, length, rows[:1] + host)
        out.copy_(fresh + rows.view(2, 2).flip(0).reshape(4))
        length.add_(1)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    host = 100
    for at in (1, 2, 3):
        graph.replay()
        expected = [2.0, 3.0, 0.0, 1.0]
        expected[at] += 3
        assert out.host.tolist() == expected
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(graph):
        length.item()


def test_gradients_are_the_hosts():
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for where in ("cpu", "cuda"):
        layer = torch.nn.Linear(4, 4, bias=False)
        layer.weight.data.copy_(weight)
        layer = layer.to(where)
        layer(torch.eye(4, device=where)).square().sum().backward()
        found.append(layer.weight.grad.cpu())
    assert torch.equal(*found)


# -- training --------------------------------------------------------------------------------------

KINDS = [
    ("block", {}),
    ("block", {"lengths": (3, 5)}),
    ("vp", {}),
    ("mdlm", {"inverse_t": True}),
    ("streak", {}),
    ("markov", {}),
    ("ar", {}),
]


@pytest.mark.parametrize(
    "kind, more", KINDS, ids=lambda x: x if isinstance(x, str) else "-".join(x)
)
@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_a_training_step_never_waits(gpu, tmp_path, kind, more, mix):
    target = make_tiny_target().to("cuda")
    vocab = torch.arange(0, 128, 2)
    net = new_drafter(target, kind, layers=1, block_size=6, draft_vocab=vocab, seed=3, mask_id=127)
    net = (with_head(net, 8) if kind == "markov" else net).to("cuda")
    settings = Settings(
        kind=kind,
        steps=6,
        batch=2,
        anchors=5,
        mix=mix,
        lr=3e-3,
        save_minutes=9,
        eval_minutes=9,
        **more,
    )
    trainer = Trainer(target, net, periodic_corpus(16), settings, tmp_path, vocab)
    waits, real = [], trainer.optimizer.step

    def step():
        real()
        waits.append(len(gpu))

    trainer.optimizer.step = step
    trainer.run(log_every=100, show=False)
    assert trainer.step == 6 and waits[-1] == 0, Counter(gpu[: waits[-1]])
    assert len(trainer.pending) == 6 and all(
        loss.is_cuda and loss.host.isfinite() for loss, _ in trainer.pending
    )


def parsed(add, *words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args([str(w) for w in (*words, "--device", "cuda")])


@pytest.fixture(scope="module")
def drafters(target_folder, tmp_path_factory):
    """Corpus, a block drafter with a Markov head and an autoregressive one, all made on the made-up
    device: {kind: folder}.
    """
    out = tmp_path_factory.mktemp("gpu")
    with pytest.MonkeyPatch.context() as patch, pretended_gpu():
        patch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
        patch.setitem(estimate.MATRIX_SIZE, "cuda", 256)
        assert (
            corpus.corpus_main(
                parsed(
                    corpus.add_arguments,
                    "--out",
                    out / "written",
                    "--length",
                    48,
                    "--batch",
                    4,
                    "--rows",
                    4,
                    "--unique",
                    0.01,
                )
            )
            == 0
        )
        text = periodic_corpus(40)
        (out / "corpus").mkdir()
        write_shard(out / "corpus", "", text.tokens, text.answer)
        (out / "corpus" / "corpus.json").write_text('{"row": 48}')
        prompts = out / "prompts.jsonl"
        prompts.write_text('{"turns": ["w10 w20"], "category": "a"}\n')
        common = (
            "--corpus",
            out / "corpus",
            "--batch",
            2,
            "--anchors",
            6,
            "--eval-rows",
            2,
            "--quiet",
        )
        small = ("--layers", 1, "--block-size", 12, "--draft-vocab", 0)
        assert (
            train.train_main(
                parsed(
                    train.add_arguments,
                    "--kind",
                    "block",
                    "--out",
                    out / "block",
                    "--steps",
                    16,
                    *small,
                    *common,
                )
            )
            == 0
        )
        assert (
            train.train_main(
                parsed(
                    train.add_arguments,
                    "--kind",
                    "markov",
                    "--out",
                    out / "markov",
                    "--steps",
                    4,
                    "--start",
                    out / "block" / "drafter",
                    "--rank",
                    8,
                    *common,
                )
            )
            == 0
        )
        assert (
            train.train_main(
                parsed(
                    train.add_arguments,
                    "--kind",
                    "ar",
                    "--out",
                    out / "ar",
                    "--steps",
                    8,
                    "--layers",
                    1,
                    "--draft-vocab",
                    0,
                    "--prompts",
                    prompts,
                    *common,
                )
            )
            == 0
        )
    return {"block": str(out / "markov" / "drafter"), "ar": str(out / "ar" / "drafter")}


# -- races -----------------------------------------------------------------------------------------

CASES = [(name, {}) for name in METHODS] + [
    ("tree", {"sampling": Sampling(temperature=0.8, top_p=0.9, seed=3)}),
    ("block", {"sampling": Sampling(repetition_penalty=1.1), "check": "exact"}),
    ("d2sd", {"params": {"verify": "cascade"}}),
    ("specdiff", {"params": {"steps": 3, "warmup": 4}}),
    ("specdiff", {"rule": "ratio", "sampling": Sampling(temperature=0.8, seed=3)}),
    ("ar-draft", {"rule": "ratio", "sampling": Sampling(temperature=0.8, seed=3)}),
    ("specdiff2", {"rule": "point-mass", "sampling": Sampling(temperature=0.8, seed=3)}),
]


@pytest.fixture(scope="module", params=["with weights of its own", "with the block's"])
def engine(request, target_folder, drafters):
    """A tiny pair on the made-up device; its costs are not measured, as nothing there takes its
    real time.
    """
    with pytest.MonkeyPatch.context() as patch, pretended_gpu():
        patch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
        named = drafters if "own" in request.param else {"block": drafters["block"]}
        loaded = load_target(replace(get_pair("smollm2-135m"), drafters=named), "fp32", "cuda")
        target = Target(loaded.model)
        check_against(target, loaded.model)
        widths = [2, 4, 8, 16, 32]
        return Engine(loaded, target, CostModel({w: 40 + w / 4 for w in widths}, 40.0, widths))


@pytest.mark.parametrize(
    "method, more", CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain"
)
def test_every_method_races_there(engine, gpu, method, more):
    record = "ar" in engine.loaded.pair.drafters
    done = list(
        race(
            engine,
            Request("w7 w21 w3 w90 w44 w15", method, max_new_tokens=20, record=record, **more),
        )
    )[-1]
    free = more.get("rule", "match") != "match"
    assert (
        free
        or done.result["identical"]
        and done.result["spec"]["tokens"] == done.result["ar"]["tokens"]
    )
    passes = [
        w
        for w in gpu
        if w.rpartition(" ")[2].startswith(("engine/target", "engine/attention", "models/"))
    ]
    assert not passes, "a pass of target or drafter must not wait for the device"
    if not record and not free:
        drafting = Counter(w for w in gpu if w.rpartition(" ")[2].startswith("drafters/"))
        passes_a_round = more.get("params", {}).get("steps") or {
            "specdiff": 2,
            "d2sd": 2,
            "best": 2,
        }.get(method, 1)
        assert (
            max(drafting.values(), default=0) <= passes_a_round * done.result["spec"]["rounds"]
        ), drafting


def test_the_device_report_runs_there(engine):
    report = device.passes(engine, repeats=1)
    assert all(one["max_difference"] < 1e-3 for one in report.values())
    assert {"eager_ms", "masked_ms", "masked_graph_ms"} <= set(report["8"])
    assert device.attentions(engine, repeats=1) and draft_pass_ms(engine, repeats=1)
    raced = device.races(engine, ["block"], ["w7 w21"], max_new_tokens=8)["block"]
    assert raced["identical"] == raced["runs"] == 1
