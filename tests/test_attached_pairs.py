"""A pair that an engine serves: the entry of models.yaml, the command line, the page's server."""

from __future__ import annotations

import io
import json
import re
import shlex
import threading
from pathlib import Path

import pytest
from rich.console import Console
from scripted_engine import ScriptedEngine
from test_attached_failures import DRAFT, PLAIN

from specdemo.__main__ import main
from specdemo.errors import UserError
from specdemo.models.fetch import target_folder
from specdemo.models.own_pair import with_drafter
from specdemo.models.pairs import load_pairs
from specdemo.models.served import KINDS, Served
from specdemo.models.status import status_of
from specdemo.request import Request
from specdemo.terminal import print_summary
from specdemo.traces import load_trace
from specdemo.ui.backend import Backend

DOC = (Path(__file__).parent.parent / "docs" / "engines.md").read_text(encoding="utf-8")


def entry(**engine):
    first = dict(kind="vllm", plain="http://10.0.0.5:8000/v1/", speculative="http://10.0.0.5:8001")
    return {"title": "Mine", "engine": first | engine}


def pairs_of(tmp_path, monkeypatch, entry):
    path = tmp_path / "pairs.yaml"
    path.write_text(json.dumps({"pairs": {"mine": entry}}), encoding="utf-8")
    monkeypatch.setenv("SPECDEMO_MODELS", str(path))
    return load_pairs()


def test_an_entry_as_the_document_shows_it(tmp_path, monkeypatch):
    block = re.search(r"```yaml\n(.*?)```", DOC, re.DOTALL)[1]
    path = tmp_path / "pairs.yaml"
    path.write_text("pairs:\n" + block.replace("   ", "", 1).replace("\n   ", "\n"))
    pair = load_pairs(path)["mine"]
    assert pair.engine == Served("vllm", "http://10.0.0.5:8000", "http://10.0.0.5:8001")
    assert status_of(pair)["state"] == "served by vLLM" and not status_of(pair)["missing"]
    monkeypatch.setenv("SPACE_ID", "somebody/space")
    assert "mine" not in load_pairs(path)
    monkeypatch.setenv("SPECDEMO_ATTACH", "1")
    assert "mine" in load_pairs(path)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (entry(kind="ollama"), "engine.kind must be one of llama.cpp, vllm"),
        (entry(speculative="ftp://a"), "must be an address like http://10.0.0.5:8000"),
        (entry(key_env="sk-secret"), "must be the name of an environment variable"),
        (entry(speculative=None), "needs “speculative”"),
        (entry(speculative="http://10.0.0.5:8000"), "“plain” and “speculative” are the same"),
        (entry(port=1), "there is no setting “engine.port”"),
        (entry() | {"target": {"hub": "a/b"}}, "“target” or “engine”, not both"),
        ({"engine": entry()["engine"]}, "“title” is missing"),
        ({"engine": {}}, "“title”, “engine.kind” and “engine.plain” are missing"),
    ],
)
def test_a_wrong_entry_is_one_sentence(tmp_path, monkeypatch, wrong, words):
    with pytest.raises(UserError, match=re.escape(words)):
        pairs_of(tmp_path, monkeypatch, wrong)


def test_what_needs_the_target_here_is_refused(tmp_path, monkeypatch):
    pair = pairs_of(tmp_path, monkeypatch, entry())["mine"]
    with pytest.raises(UserError, match="An engine serves mine elsewhere"):
        target_folder(pair)
    with pytest.raises(UserError, match="leave --drafter out"):
        with_drafter(pair, tmp_path)


@pytest.fixture()
def served(tmp_path, monkeypatch):
    with ScriptedEngine("llama.cpp", PLAIN, speculates=False) as first:
        with ScriptedEngine("llama.cpp", DRAFT) as second:
            two = dict(kind="llama.cpp", plain=first.url, speculative=second.url, drafts="itself")
            yield pairs_of(tmp_path, monkeypatch, entry(**two))["mine"]


def test_the_command_line_races(served, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    assert main(["race", "--pair", "mine", "--json", "--trace", str(trace), "hi"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["served"]["engine"] == "llama.cpp b11549"
    assert "does not promise otherwise" in err and "sent to the engine" in err
    assert "mine, served by llama.cpp" in err and "served on" not in err
    assert load_trace(trace)[-1].result["identical"] is None
    everything = trace.read_text(encoding="utf-8") + out + err
    assert "127.0.0.1" not in everything and served.engine.plain not in everything


@pytest.mark.parametrize("option", ["--method=block", "--param=gamma=3", "--dtype=float32",
    "--device=cpu", "--remeasure"])  # fmt: skip
def test_options_of_our_own_engine_are_refused_by_name(served, capsys, option):
    assert main(["race", "--pair", "mine", option, "hi"]) == 1
    assert f"leave {option.split('=')[0]} out" in capsys.readouterr().err


def test_the_page_asks_and_races(served):
    backend, said = Backend(), []
    backend.fetch("mine", lambda *words: None)
    assert backend.refuse(served) == "" and backend.missing(served) == ""
    attached = backend.load("mine", lambda *words: said.append(words))
    assert said and not backend.runs_on_cpu(attached)
    events = list(backend.race(attached, Request("hi"), threading.Event()))
    assert events[-1].kind == "done" and events[0].engine == "llama.cpp b11549"
    with pytest.raises(UserError, match="measured from the command line"):
        backend.bench(attached, ["best"], [], 8, threading.Event())


def test_the_summary_never_says_identical(served):
    events = list(Backend().race(Backend().load("mine", print), Request("hi"), threading.Event()))
    out = io.StringIO()
    for comparison in ("tokens", "text", "parted", "none"):
        events[-1].result["served"]["comparison"] = comparison
        print_summary(Console(file=out, width=200), events[-1].result)
    assert "exactly" not in out.getvalue() and "identical" not in out.getvalue()
    events[-1].result["served"]["by_position"] = [1.0, 0.875]
    print_summary(Console(file=out, width=300), events[-1].result)
    assert "counters: 100%, 88%; a round that drafted fewer counts" in out.getvalue()


@pytest.mark.parametrize(
    "named, real, said",
    [
        ("vllm", "llama.cpp", "is llama.cpp, not vLLM; correct “kind” in models.yaml to llama.cpp"),
        ("llama.cpp", "vllm", "is vLLM or TensorRT-LLM, not llama.cpp"),
        ("vllm", "sglang", "is SGLang, not vLLM"),
    ],
)
def test_an_engine_of_another_kind_is_named(tmp_path, monkeypatch, capsys, named, real, said):
    with ScriptedEngine(real, speculates=False) as first, ScriptedEngine(real) as second:
        two = dict(kind=named, plain=first.url, speculative=second.url)
        pairs_of(tmp_path, monkeypatch, entry(**two))
        assert main(["race", "--pair", "mine", "hi"]) == 1
    err = capsys.readouterr().err
    assert f"The speculative endpoint {said}" in err and "127.0.0.1" not in err


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_each_engine_is_an_entry(kind, tmp_path, capsys):
    assert main(["serve-example", kind, "--model", "a b"]) == 0
    out = capsys.readouterr().out
    path = tmp_path / "pairs.yaml"
    path.write_text("pairs:\n" + out[out.index("  mine:") :])
    pair = load_pairs(path)["mine"]
    assert pair.engine.kind == kind and pair.title == f"My model, served by {pair.engine.title}"
    assert (pair.size, pair.hardware) == ("on this machine", "this machine")
    assert "'a b'" in out and "{" + "model}" not in out


def test_the_example_takes_any_name_and_no_odd_number(tmp_path, capsys):
    assert main(["serve-example", "transformers", "--model", "a: {b} # c"]) == 0
    out = capsys.readouterr().out
    path = tmp_path / "pairs.yaml"
    path.write_text("pairs:\n" + out[out.index("  mine:") :])
    assert load_pairs(path)["mine"].engine.model == "a: {b} # c"
    assert main(["serve-example", "vllm", "--drafter", 'x"y']) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "speculative-c" in line)
    words = shlex.split(line)
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "dflash", "model": 'x"y', "num_speculative_tokens": 15}
    assert main(["serve-example", "vllm", "--tokens", "0"]) == 1
    assert "--tokens must be at least 1" in capsys.readouterr().err
