"""The bench on a pair that an engine serves: the same report, and no figure that is not told."""

from __future__ import annotations

import json

import pytest
from scripted_engine import ScriptedEngine, captured, plain_vllm
from test_attached import told
from test_attached_failures import DRAFT
from test_attached_load import suite
from test_attached_pairs import entry, pairs_of

from specdemo.__main__ import main
from specdemo.bench import load_report
from specdemo.bench.html import fragment, page
from specdemo.models.served import METHOD
from specdemo.prompts import ALL

pytestmark = pytest.mark.slow

# the plain endpoint's own stream of the very text that DRAFT writes
SAME = [line.replace('"draft_n":', '"x":').replace('"draft_n_accepted":', '"y":') for line in DRAFT]


@pytest.fixture()
def bench(tmp_path, monkeypatch):
    """Run the command on two scripted endpoints: exit status, the report if there is one."""

    def run(kind, plain, speculative, *options, cut_at=0, refuse_at=0, refusal=None, **settings):
        with ScriptedEngine(kind, plain, speculates=False) as first:
            with ScriptedEngine(kind, speculative) as second:
                second.instead = {cut_at: [*second.lines[:9], "cut"], refuse_at: refusal}
                two = dict(kind=kind, plain=first.url, speculative=second.url, model="m")
                pairs_of(tmp_path, monkeypatch, entry(**two, **settings))
                out = tmp_path / "out"
                command = ["bench", "--pair", "mine", "--suite", str(suite(tmp_path))]
                code = main([*command, "--out", str(out), "--repeats", "2", *options])
                asked = len(first.bodies), len(second.bodies)
        path = out / "report.json"
        return code, load_report(path) if path.exists() else None, asked

    return run


def test_the_same_report_with_pairs_and_intervals(bench, tmp_path, capsys):
    code, report, asked = bench("llama.cpp", SAME, DRAFT, drafts="itself, 5 tokens")
    assert code == 0 and asked == (1 + 3 * 2 * 2, 1 + 3 * 2)  # plain, served, plain; a warm-up each
    figures = report["table"][METHOD][ALL]
    assert (figures["runs"], figures["prompts"]) == (6, 3) and figures["identical"] == 1
    # the recorded stream: 40 tokens, 7 rounds, 32 of 34 kept
    assert figures["tokens_per_round"] == pytest.approx(39 / 7, rel=1e-4)
    assert figures["accepted_per_round"] == pytest.approx(32 / 7, rel=1e-4)
    assert figures["rows_per_pass"] == pytest.approx(1 + 34 / 7, rel=1e-4)
    # both lanes are timed by the engine's clock, which is the same here
    assert figures["speedup"] == pytest.approx(1, abs=1e-4)
    assert figures["interval"] == pytest.approx([1, 1], abs=1e-4)
    assert figures["degenerate"] == 0 and report["baseline"]["repeatable"]
    assert figures["time"] is None and figures["predicted"] is None
    served = report["served"]
    assert served["clock"] == "engine" and served["inferred"] == served["totals"] == 0
    assert served["drafts"] == "itself, 5 tokens" and len(served["not_told"]) == 2
    assert report["environment"]["idle"] is None and report["complete"]
    words = " ".join(report["remarks"])
    assert "llama.cpp b11549 decoded both sides, timed by its own clock" in words
    everything = page(report) + json.dumps(report) + "".join(capsys.readouterr())
    runs = (tmp_path / "out" / "runs.jsonl").read_text()
    assert "127.0.0.1" not in everything + runs and "Predicted and measured" not in page(report)
    assert "not told by the engine" in fragment(report) and "same text" in fragment(report)


def test_what_an_engine_does_not_tell_has_no_figure(bench):
    """Prompt lookup of transformers: neither tokens nor drafts are told, and no token is named."""
    plain, lookup = (captured(f"transformers_5.24.0_{n}_rep") for n in ("plain", "lookup"))
    code, report, _ = bench("transformers", plain, lookup)
    figures = report["table"][METHOD][ALL]
    assert code == 0 and figures["tokens_per_second"] is figures["tokens_per_round"] is None
    assert figures["accepted_per_round"] is figures["rows_per_pass"] is None
    assert figures["accepted_at"] == [] and figures["degenerate"] is None
    assert figures["non_degenerate"] == {"speedup": None, "tokens_per_round": None}
    assert report["baseline"]["loops"] is report["baseline"]["degenerate"] is None
    # the same text in less time; of other texts nothing could be said
    assert figures["identical"] == 1 and figures["speedup"] > 0
    assert len(report["served"]["not_told"]) == 6 and report["served"]["inferred"] == 6
    assert "how many of them it accepts" in " ".join(report["remarks"])
    assert page(report)


def test_texts_that_part_have_no_speed_where_tokens_are_not_counted(bench):
    plain, lookup = (captured(f"transformers_5.24.0_{n}_rep") for n in ("plain", "lookup"))
    other = [line.replace("colors", "paints") for line in lookup]
    assert other != lookup
    _, report, _ = bench("transformers", plain, other)
    figures = report["table"][METHOD][ALL]
    assert figures["speedup"] is None and figures["identical"] == 0
    words = " ".join(report["remarks"])
    assert "different texts in 100.0% of the runs" in words and "does not promise" in words


def test_rounds_that_are_inferred(bench):
    _, report, _ = bench("vllm", plain_vllm(), captured("vllm_0.32.0_ngram_rep"))
    figures = report["table"][METHOD][ALL]
    assert report["served"]["inferred"] == 6 and figures["rows_per_pass"] is not None
    assert report["served"]["clock"] == "arrival"
    assert "one chunk is taken for one pass" in " ".join(report["remarks"])


def test_rounds_that_arrived_merged_have_totals_only(bench):
    """Two chunks of five tokens as one: the engine's totals still give the figures of all."""
    lines = captured("vllm_0.32.0_draft_chat")
    one, two = (json.loads(lines[i].removeprefix("data: ")) for i in (2, 3))
    one["choices"][0]["delta"]["content"] += two["choices"][0]["delta"]["content"]
    one["choices"][0]["token_ids"] += two["choices"][0]["token_ids"]
    _, report, _ = bench("vllm", plain_vllm(), [*lines[:2], "data: " + json.dumps(one), *lines[4:]])
    figures, (_, accepted, tokens) = report["table"][METHOD][ALL], told("vllm_0.32.0_draft_chat")
    assert report["served"]["totals"] == 6 and figures["accepted_at"] == []
    assert figures["rows_per_pass"] is None and "merged" in " ".join(report["remarks"])
    assert figures["tokens_per_round"] == pytest.approx((tokens - 1) / 10, rel=1e-4)
    assert figures["accepted_per_round"] == pytest.approx(accepted / 10, rel=1e-4)


def test_sampled_answers_are_not_compared(bench):
    _, report, _ = bench("llama.cpp", SAME, DRAFT, "--temperature", "1")
    assert report["table"][METHOD][ALL]["identical"] is None
    assert "not compared" in page(report) and "same distribution" not in page(report)


def test_an_endpoint_that_breaks_ends_the_bench_and_loses_nothing(bench, capsys):
    """The trial under way does not count; the same command asks it again."""
    code, report, _ = bench("llama.cpp", SAME, DRAFT, cut_at=4)  # behind a warm-up, two trials
    assert code == 1 and not report["complete"] and report["refused"] == []
    assert report["table"][METHOD][ALL]["runs"] == 2
    err = capsys.readouterr().err
    assert "The speculative endpoint broke the connection" in err and "same command" in err
    code, report, asked = bench("llama.cpp", SAME, DRAFT)
    assert code == 0 and report["complete"] and report["table"][METHOD][ALL]["runs"] == 6
    assert asked == (1 + 4 * 2, 1 + 4)


def test_a_prompt_that_an_engine_refuses_is_left_out_and_named(bench):
    """As our own engine's are: it is refused whenever it is asked, so the bench goes on."""
    long = {"error": {"code": 400, "message": "request exceeds the context size"}}
    code, report, _ = bench("llama.cpp", SAME, DRAFT, refuse_at=3, refusal=long)
    assert code == 0 and report["complete"] and len(report["refused"]) == 1
    assert (
        "served: The speculative endpoint refused the request (request exceeds the"
        in (report["refused"][0])
    )
    assert report["table"][METHOD][ALL]["runs"] == 5


def test_an_engine_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    with ScriptedEngine("vllm") as gone:
        two = dict(kind="vllm", plain=gone.url, speculative=gone.url + "/b")
    pairs_of(tmp_path, monkeypatch, entry(**two))
    assert main(["bench", "--pair", "mine", "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert "The plain endpoint does not answer; start it" in err and "127.0.0.1" not in err
    assert main(["race", "--pair", "mine", "hi", "--check", "exact"]) == 1
    err += capsys.readouterr().err
    assert "shows no logits to check" in err and "is sent to" not in err


@pytest.mark.parametrize("option", ["--methods=block", "--peers", "--dtype=float32",
    "--remeasure"])  # fmt: skip
def test_options_of_our_own_engine_are_refused_by_name(bench, capsys, option):
    code, report, asked = bench("llama.cpp", SAME, DRAFT, option)
    assert code == 1 and report is None and asked == (0, 0)
    assert f"leave {option.split('=')[0]} out" in capsys.readouterr().err


def test_a_pair_that_runs_here_needs_methods(tmp_path, capsys):
    assert main(["bench", "--out", str(tmp_path / "out")]) == 1
    assert "Name at least one method" in capsys.readouterr().err
