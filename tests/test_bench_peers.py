"""Other engines in the bench's table: turns, figures by hand, and what cannot run is one sentence.
No engine is faked but in the tests of the table itself.
"""

from __future__ import annotations

import dataclasses
import io
import json
from types import SimpleNamespace

import pytest
import torch
from fake_runners import PROMPTS, FakeRunners, plan
from rich.console import Console
from tiny import PROMPT, tiny_engine

from specdemo.bench.charts import charts
from specdemo.bench.cli import print_report
from specdemo.bench.html import fragment
from specdemo.bench.measure import measure
from specdemo.bench.peer_table import advice
from specdemo.bench.peers import PEER_TITLES, gguf_files, hf, llamacpp, own, parse_peers
from specdemo.bench.peers.base import PeerAnswer, PeerFacts, PeerSetup
from specdemo.bench.peers.group import Peers, open_peers
from specdemo.bench.peers.process import Child
from specdemo.bench.remarks import remarks
from specdemo.bench.report import load_report, make_report, save_report
from specdemo.bench.runs_file import RUNS
from specdemo.errors import UserError
from specdemo.models.pairs import get_pair

END = 2
SILENT = dict(progress=lambda message, fraction: None)


class Fixed:
    """A peer with fixed times: 20 tokens in ``seconds``, other text on the prompt "loop"."""

    def __init__(self, seconds, dtype="float32", calls=None):
        self.seconds, self.calls, self.closed = seconds, calls, False
        self.facts = PeerFacts("Other 1.0", "the same file", dtype, 2)

    def answer(self, ids, max_new_tokens):
        self.calls.append("other")
        if ids == ["hard"]:
            raise ValueError("no memory")
        return PeerAnswer([*range(100, 121), END], 20, self.seconds, 0.1, 20)

    def close(self):
        self.closed = True


@pytest.fixture()
def fakes():
    runners, calls = FakeRunners(), []

    def logged(label, run):
        def call(prompt, seed):
            calls.append(label)
            return run(prompt, seed)

        return call

    labelled = {label: logged(label, run) for label, run in runners.by_label().items()}
    peers = Peers(lambda text: [text], 21, [END])
    fixed = Fixed(0.25, calls=calls)
    peers.open("llama.cpp-bf16", lambda: fixed)
    peers.open("llama.cpp-q8_0", lambda: llamacpp_missing())
    return SimpleNamespace(runners=labelled, peers=peers, calls=calls, fixed=fixed)


def llamacpp_missing():
    raise UserError("Not installed; install it.")


def measured(fakes, path):
    names = ("llama.cpp-bf16", "llama.cpp-q8_0")
    return measure(fakes.runners, PROMPTS, plan(peers=names), path, peers=fakes.peers)


def test_peers_take_turns_with_the_methods_between_two_plain_runs(fakes, tmp_path):
    lines = measured(fakes, tmp_path)
    turns = fakes.calls[4:]  # behind the warm-up
    trials = [turns[i : i + 5] for i in range(0, len(turns), 5)]
    assert len(trials) == 6 and all(t[0] == t[-1] == "ar" for t in trials)
    assert {t.index("other") for t in trials} == {1, 2, 3}
    assert [line["order"] for line in lines if line["kind"] == "trial"][0] == [
        "block",
        "tree",
        "llama.cpp-bf16",
    ]
    fakes.peers.close()
    assert fakes.fixed.closed


def test_figures_by_hand(fakes, tmp_path):
    """The peer writes 20 tokens in 0.25 s where plain takes 1 s, fails on the hard prompt, and has
    the text of plain decoding, an end token aside, on one of the two others.
    """
    table = make_report(measured(fakes, tmp_path))["peers"]
    rows = {row["name"]: row for row in table["rows"]}
    assert [row["name"] for row in table["rows"]] == [
        "llama.cpp-bf16",
        "tree",
        "ar",
        "block",
        "llama.cpp-q8_0",
    ]
    peer = rows["llama.cpp-bf16"]
    assert peer["ratio"] == pytest.approx(4) and peer["interval"] == pytest.approx([4, 4])
    assert peer["tokens_per_second"] == pytest.approx(80) and peer["runs"] == 4
    assert peer["same_text"] == 0.5 and peer["tokens_per_round"] == 1
    assert peer["note"] == "2 answers failed: It failed (ValueError: no memory)."
    assert (peer["engine"], peer["threads"]) == ("Other 1.0", 2)
    assert rows["ar"]["ratio"] == 1 and rows["ar"]["interval"] is None
    tree = rows["tree"]
    assert tree["ratio"] == pytest.approx(1.5)
    assert tree["interval"] == pytest.approx([1, 2])  # all drawn hard; none drawn hard
    missing = rows["llama.cpp-q8_0"]
    assert missing["ratio"] is None and missing["note"] == "Not installed; install it."
    assert "For speed alone take llama.cpp, bf16 (80 tokens per second)" in table["advice"]
    assert table["advice"].endswith(", ahead of SpecDemo, Best-first tree (30 tokens per second).")


def test_the_table_is_shown_everywhere_as_text(fakes, tmp_path):
    hostile = "<script>alert(1)</script>"
    fakes.peers.facts["llama.cpp-q8_0"] = {"missing": f"[red]{hostile}"}
    report = make_report(measured(fakes, tmp_path))
    out = io.StringIO()
    print_report(report, Console(file=out, width=300))
    said = out.getvalue()
    assert "Other 1.0; 2 threads; the same file" in said and "[red]<script>" in said
    html = fragment(report)
    assert "Other 1.0" in html and hostile not in html and report["peers"]["advice"][:20] in html
    figure = charts(report)[0][1]
    assert sorted(figure.data[0].x) == pytest.approx([10, 20, 30, 80])
    save_report(report, tmp_path / "report.json")
    assert load_report(tmp_path / "report.json")["peers"]["advice"] == report["peers"]["advice"]


def test_a_report_and_measurements_from_before_peers_are_read(tmp_path):
    lines = measure(FakeRunners().by_label(), PROMPTS, plan(), tmp_path)
    report = make_report(lines)
    save_report(report, tmp_path / "new.json")
    old = json.loads((tmp_path / "new.json").read_text(encoding="utf-8")) | {"version": 2}
    assert old.pop("peers") is None and old["plan"].pop("peers") == []
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    new = load_report(tmp_path / "new.json")
    new["paired"], new["baseline"] = (
        {},
        new["baseline"] | dict.fromkeys(("loops", "loop_at", "echoes")),
    )
    for row in new["table"].values():
        for figures in row.values():
            figures |= {"interval": None, "accepted_at": [], "unflagged": None}
    assert load_report(tmp_path / "old.json") == new | {"remarks": remarks(new)}
    for line in lines:
        line.pop("peers")
    lines[0]["version"] = 2
    (tmp_path / RUNS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    untouched = FakeRunners()
    again = measure(untouched.by_label(), PROMPTS, plan(), tmp_path)
    assert not untouched.calls and make_report(again) == report


def row(title, ratio, interval, own=False, dtype="bfloat16"):
    values = {"title": title, "ratio": ratio, "interval": interval, "own": own, "dtype": dtype}
    return values | {"tokens_per_second": 50 * ratio}


@pytest.mark.parametrize(
    "other, says",
    [
        ([1.0, 1.2], "ours is ahead of the fastest"),
        ([1.4, 1.7], "ours is about as fast as the fastest"),
        ([1.7, 1.9], "ours is behind the fastest"),
    ],
)
def test_advice_calls_nobody_faster_whose_interval_overlaps(other, says):
    rows = [
        row("ours", 1.5, [1.3, 1.6], own=True),
        row("theirs", sum(other) / 2, other),
        row("small", 3.0, [2.9, 3.1], dtype="int4"),
    ]
    text = advice(rows, "an abacus")
    assert says in text and text.startswith("For speed alone take small (150 tokens per second)")
    assert "nothing is said" in advice(rows[:1], "an abacus")


def test_the_fastest_on_average_is_not_called_ahead_where_intervals_overlap():
    ours, fewer = row("ours", 1.8, [1.3, 2.7], own=True), row("small", 1.4, [1.2, 1.6], dtype="q4")
    same = row("theirs", 1.0, [0.9, 1.1])
    assert advice([ours, fewer, same], "an abacus") == (
        "ours (90 tokens per second) is the fastest here (an abacus), though not clearly ahead of"
        " small (70 tokens per second). In the same number type (bfloat16) ours is ahead of the"
        " fastest other engine, theirs (50 tokens per second)."
    )


# -- names -----------------------------------------------------------------------------------------


def test_names_are_checked():
    assert parse_peers(None) == () and parse_peers(" transformers,,transformers ") == (
        "transformers",
    )
    assert {*hf.OPEN, *llamacpp.OPEN, "onnxruntime-int4"} == set(PEER_TITLES)
    for wrong in ("vllm", "transformers,x", " , "):
        with pytest.raises(UserError, match="choose from: transformers"):
            parse_peers(wrong)


# -- the engines -----------------------------------------------------------------------------------


def test_generate_writes_the_models_own_greedy_tokens(tiny_loaded):
    endless = dataclasses.replace(tiny_loaded, eos_ids=())
    engine = SimpleNamespace(loaded=endless, target=tiny_loaded, pace=None)
    ids, want = [5, 6, 7, 5, 6, 7, 5, 6], []
    with torch.inference_mode():
        for _ in range(12):
            logits = tiny_loaded.model(torch.tensor([[*ids, *want]])).logits[0, -1]
            want.append(int(logits.argmax()))
    setup = PeerSetup(engine, 64, **SILENT)
    plain = hf.OPEN["transformers"](setup).answer(ids, 12)
    assert plain.ids == want and plain.tokens == plain.rounds == 11
    assert plain.seconds > 0 and plain.ttft_seconds > 0
    lookup = hf.OPEN["transformers-lookup"](setup).answer(ids, 12)
    assert lookup.ids == want and lookup.tokens <= 11 and lookup.rounds < 12


def test_the_one_row_lane_writes_greedy_text():
    engine = tiny_engine()
    engine.pace = None
    with torch.inference_mode():
        found = own.OneRow(PeerSetup(engine, 64, **SILENT)).answer(PROMPT, 8)
    assert len(found.ids) == 8 and found.tokens == 7 and found.rounds == 7 and found.seconds > 0


def test_without_peers_none_is_opened():
    with open_peers(None, (), ["p"], 8, SILENT["progress"]) as peers:
        assert peers.names == [] and peers.facts == {}


def test_a_child_that_ends_is_one_sentence(tmp_path):
    settings = {"model": "none.gguf", "context": 64, "threads": 1, "ngram": 0, "drafter": ""}
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\nexit 3\n")
    server.chmod(0o755)
    with pytest.raises(UserError) as caught:
        Child(
            "llamacpp_child.py", settings | {"server": str(server), "draft_tokens": 0}, "llama.cpp"
        )
    assert str(caught.value) == ("llama.cpp did not start (llama-server ended with status 3).")


@pytest.mark.real
@pytest.mark.slow
def test_llama_cpp_reads_the_engines_own_bits_and_writes_its_text(loaded_bf16, monkeypatch):
    """The GGUF made from the fetched file holds the bits of the target in memory, and the wheel's
    llama.cpp begins an answer as plain decoding does.
    """
    pytest.importorskip("xllamacpp")
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    from gguf import GGMLQuantizationType, GGUFReader
    from gguf.quants import dequantize

    from specdemo.bench.peers.gguf_files import converted, file_type

    path = converted(loaded_bf16.pair, "BF16", SILENT["progress"])
    assert file_type(path) == "BF16"
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    weights = loaded_bf16.model.state_dict()
    for name, ours in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
        ("blk.7.attn_norm.weight", "model.layers.7.input_layernorm.weight"),
    ):
        values = dequantize(tensors[name].data, GGMLQuantizationType(tensors[name].tensor_type))
        assert torch.equal(torch.tensor(values).bfloat16(), weights[ours].bfloat16()), name
    engine = SimpleNamespace(loaded=loaded_bf16, target=loaded_bf16, pace=None)
    setup = PeerSetup(engine, 128, **SILENT)
    ids = loaded_bf16.tokenizer("The capital of France is")["input_ids"]
    generated = hf.OPEN["transformers"](setup).answer(ids, 8)
    peer = llamacpp.OPEN["llama.cpp-bf16"](setup)
    try:
        found = peer.answer(ids, 8)
    finally:
        peer.close()
    assert found.ids == generated.ids and len(found.ids) == 8
    assert found.tokens == 7 and found.seconds > 0 and peer.facts.dtype == "bfloat16"


def test_of_a_target_that_is_not_here_no_file_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    monkeypatch.setattr(gguf_files, "unpack_gguf", lambda *_: pytest.fail("fetched"))
    monkeypatch.setattr(gguf_files, "find_target", lambda pair: None)
    with pytest.raises(UserError, match="was not made from a GGUF"):
        gguf_files.original(get_pair(), lambda *_: None)
