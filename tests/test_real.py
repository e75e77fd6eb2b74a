"""The embedded pair, for real: nothing is lost with any method, and the library's own loop
agrees.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdemo.__main__ import main
from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.errors import UserError
from specdemo.events import Done, DraftMade, Verify
from specdemo.models.drafters import load_drafter
from specdemo.request import Request, Sampling
from specdemo.traces import load_trace

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parent.parent
MATHS = (
    "A farmer has 14 hens and each hen lays 5 eggs a week. How many eggs does he have after 3"
    " weeks? Explain step by step."
)
PROMPTS = [
    MATHS,
    "Write a Python function that returns the largest of three numbers.",
    "Name two rivers in France.",
]
COPY = (
    "Repeat exactly, three times: The green parrot on the old pirate ship sings a song about golden"
    " coins every single morning."
)


@pytest.fixture(params=["engine_bf16", "engine_fp32"])
def engine(request):
    return request.getfixturevalue(request.param)


def done(engine, prompt, **more) -> Done:
    return list(
        race(engine, Request(prompt, **({"method": "block", "max_new_tokens": 16} | more)))
    )[-1]


def test_greedy_is_bitwise_exact(engine):
    """Against one token a pass at the fixed width, bit for bit; against the one-row kernel by token
    in fp32, and named in bf16.
    """
    for prompt in PROMPTS[:2]:
        result = done(engine, prompt, check="exact").result
        assert result["identical"] and result["first_difference"] is None
        assert result["exact"]["identical"] and result["exact"]["positions"] == len(
            result["output_ids"]
        )
        other = result["exact"]["one_row"]
        assert other["identical"] or (
            engine.target.dtype == torch.bfloat16
            and other["first_difference"]["top2_gap"] is not None
        )


def test_sampled_lanes_are_identical(engine_bf16):
    for seed in range(3):
        result = done(
            engine_bf16, PROMPTS[0], sampling=Sampling(0.7, top_p=0.9, seed=seed), max_new_tokens=12
        ).result
        assert result["identical"], result["first_difference"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_writes_the_plain_text(engine_bf16, method):
    """Greedy and sampled, with everything recorded; the trace survives a round trip."""
    for sampling in (Sampling(), Sampling(0.8, top_p=0.95, seed=5)):
        events = list(
            race(engine_bf16, Request(MATHS, method, sampling=sampling, max_new_tokens=20))
        )
        result = events[-1].result
        assert result["identical"] and result["method"] == method
        for draft, verdict in zip(
            [e for e in events if isinstance(e, DraftMade)],
            [e for e in events if isinstance(e, Verify)],
            strict=True,
        ):
            assert (
                len(draft.tokens)
                == len(draft.parent)
                == len(draft.q)
                == len(draft.origin)
                == len(verdict.status)
            )
            assert len(set(zip(draft.parent, draft.tokens, strict=True))) == len(draft.tokens), (
                "siblings differ"
            )
            assert draft.seconds >= 0 and verdict.rows >= len(draft.tokens) + 1


def test_the_drafter_is_worth_having(engine_bf16):
    """Far more than one token a pass on arithmetic prose; a drafter wired wrongly falls to 1.0
    (C29, C45, C46, C57).
    """
    assert done(engine_bf16, MATHS, max_new_tokens=48).result["spec"]["tokens_per_round"] > 1.8


def test_drafts_survive_a_long_context(engine_bf16):
    """Behind some 1,600 tokens of another text: a drafter that reads all of them, of which it was
    trained on a third, keeps 0.1 to 0.3 drafts a round.
    """
    long = (ROOT / "LICENSE").read_text(encoding="utf-8")[:7000] + "\n\n" + MATHS
    request = Request(long, "block", max_new_tokens=32)
    events = list(race(engine_bf16, request))
    result, window = events[-1].result, "the last 432 tokens"
    assert result["prompt_tokens"] > 1200 and result["identical"]
    assert result["spec"]["accepted_per_round"] > 0.6
    assert window in events[0].weights and window in result["note"]
    net = load_drafter(engine_bf16.loaded.pair, "block", engine_bf16.loaded)
    assert net.config.context_window == 432


def test_lookup_pays_on_copying(engine_bf16):
    assert (
        done(engine_bf16, COPY, method="lookup", max_new_tokens=64).result["spec"][
            "tokens_per_round"
        ]
        > 1.3
    )


def test_the_librarys_own_loop_agrees(engine_fp32):
    """Outside witness: the same drafter under ``generate(speculation_type="dflash")`` writes the
    same greedy text.
    """
    engine = engine_fp32
    model, drafter = engine.loaded.model, load_drafter(engine.loaded.pair, "block", engine.loaded)
    for prompt in PROMPTS[1:2]:
        ids = engine.encode(prompt)
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            assistant_model=drafter,
            speculation_type="dflash",
            do_sample=False,
            max_new_tokens=16,
        )
        assert out[0, len(ids) :].tolist() == done(engine, prompt).result["output_ids"]


@pytest.mark.parametrize(
    "process", [pytest.param(True, marks=pytest.mark.slow), False], ids=["process", "here"]
)
def test_command_line_prints_one_json_object(engine_bf16, tmp_path, capsys, monkeypatch, process):
    trace = tmp_path / "race.json"
    words = ["race", "Say hello.", "--method", "block", "--max-new-tokens", "8", "--json"]
    words += ["--trace", str(trace)]
    if process:
        command = [sys.executable, "-m", "specdemo", *words]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert run.returncode == 0, run.stderr
        out = run.stdout
    else:
        monkeypatch.setattr("specdemo.engine.load_engine", lambda *_, **__: engine_bf16)
        assert main(words) == 0
        out = capsys.readouterr().out
    result = json.loads(out.splitlines()[-1])
    assert {
        "method",
        "pair",
        "hardware",
        "dtype",
        "prompt_tokens",
        "finish_reason",
        "ar",
        "spec",
        "speedup",
        "predicted_speedup",
        "identical",
        "first_difference",
        "output_ids",
    } <= result.keys()
    assert {
        "tokens",
        "seconds",
        "tokens_per_second",
        "ttft_seconds",
        "one_row_tokens_per_second",
    } <= result["ar"].keys()
    assert {
        "tokens",
        "seconds",
        "tokens_per_second",
        "rounds",
        "accepted_per_round",
        "tokens_per_round",
        "draft_seconds",
        "verify_seconds",
    } <= result["spec"].keys()
    events = load_trace(trace)
    assert events[-1].to_dict()["result"]["output_ids"] == result["output_ids"]


@pytest.mark.slow
def test_the_device_report_names_widths_passes_drafts_and_checked_races(
    engine_bf16, tmp_path, capsys, monkeypatch
):
    from specdemo.bench import device

    monkeypatch.setattr("specdemo.engine.load_engine", lambda *_: engine_bf16)
    args = argparse.ArgumentParser()
    device.add_arguments(args)
    words = [
        "--repeats",
        "1",
        "--dtypes",
        "bfloat16",
        "--limit",
        "1",
        "--max-new-tokens",
        "8",
        "--methods",
        "block",
    ]
    assert (
        device.device_main(args.parse_args([*words, "--out", str(tmp_path / "report.json")])) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "report.json").read_text()) == report and report["hardware"]
    one = report["bfloat16"]
    trusted = {int(w) for w, p in one["passes"].items() if p["equal_rows"] == p["of"]}
    assert set(engine_bf16.costs.widths) <= trusted, (
        "the widths a race uses agree here too, on other text"
    )
    assert set(one["draft"]) == {"1x8", "1x16", "4x16"} and all(
        ms > 0 for ms in one["draft"].values()
    )
    assert {len(kinds) for kinds in one["attention"].values()} == {3} and {
        "160 + 15",
        "1000 + 31",
    } <= set(one["attention"])
    assert (
        one["races"]["block"]["identical"]
        == one["races"]["block"]["bitwise"]
        == one["races"]["block"]["runs"]
        == 1
    )
    for work in ("passes", "attentions", "races"):
        monkeypatch.setattr(device, work, lambda *_: {})
    with pytest.raises(UserError, match="name a file in a folder"):
        device.device_main(args.parse_args([*words, "--out", str(tmp_path)]))
