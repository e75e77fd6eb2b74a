"""What is printed reaches every console and steers none, what comes from standard input is text,
and nothing is lost at the end of the work.
"""

import errno
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_race import fake_events

from specdemo import files
from specdemo.__main__ import main
from specdemo.console import note_if_slow, phases, printable
from specdemo.events import Done, Prefill
from specdemo.traces import load_trace

ROOT = Path(__file__).parent.parent
HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\rXe\u202ef\tg\nh\x7f"


@pytest.fixture
def console(monkeypatch):
    """stdout with a character set of its own; a function that makes it and gives its text."""

    def make(encoding):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
        monkeypatch.setattr(sys, "stdout", stream)

        def text():
            stream.flush()
            return stream.buffer.getvalue().decode(encoding)

        return text

    return make


@pytest.fixture
def fake_engine(monkeypatch):
    """A race that needs no model; its answer holds ``text``, its note, too."""
    import specdemo.engine

    def make(text="", error=None):
        events = list(fake_events(tokens=12))
        for event in events:
            if isinstance(event, Prefill):
                event.text = text
            if isinstance(event, Done):
                event.result["note"] = text

        def race(engine, request):
            yield from events
            if error:
                raise error

        monkeypatch.setattr(specdemo.engine, "load_engine", lambda *a, **k: None)
        monkeypatch.setattr(specdemo.engine, "race", race)

    return make


@pytest.fixture
def no_engine(monkeypatch):
    import specdemo.engine

    monkeypatch.setattr(
        specdemo.engine, "load_engine", lambda *a, **k: pytest.fail("it was loaded")
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252", "utf-8"])
@pytest.mark.parametrize("command", ["race", "bench", "export"])
def test_help_is_printed_on_every_console(console, command, encoding):
    text = console(encoding)
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0 and f"specdemo {command}" in text()


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252"])
def test_an_answer_is_printed_on_every_console_and_its_json_is_whole(
    console, fake_engine, encoding, capsys
):
    answer = "“Ünï – 中文 😀”"
    fake_engine(answer)
    text = console(encoding)
    assert main(["race", "x"]) == 0 and "tok/round" in text()
    text = console(encoding)
    assert main(["race", "x", "--json"]) == 0
    assert json.loads(text())["note"] == answer


def test_typographic_signs_have_plain_ones_where_a_console_has_none(console):
    text = console("ascii")
    with pytest.raises(SystemExit):
        main(["race", "--help"])
    assert '"-" reads it from standard input' in " ".join(text().split())


@pytest.mark.parametrize("terminal", ["1", ""])
def test_control_characters_of_a_model_never_reach_the_terminal(
    fake_engine, capsys, monkeypatch, terminal
):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    fake_engine(HOSTILE)
    assert main(["race", "x"]) == 0
    said = capsys.readouterr().out
    assert "␛]0;title␇b␛[2Jc�d␍Xe�f" in said
    for code in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\r", "\u202e"):
        assert code not in said


def test_what_is_printable_stays():
    text = "Zürich\n\t1 × 2 — 中文 👩\u200d🚀 “so”"
    assert printable(text) == text


def test_an_error_is_one_line_whatever_it_quotes(capsys):
    assert main(["race", "x", "--pair", "a\x1b[31m\nb\r\nc"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "\x1b" not in said and "\r" not in said


def run(command):
    return subprocess.run(
        ["sh", "-c", command.replace("specdemo", f"{sys.executable} -m specdemo", 1)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", ["specdemo export --help | true", "specdemo models | true"])
def test_a_closed_pipe_is_a_quiet_end(command):
    ended = run(command)
    assert ended.stderr == "" and ended.returncode == 0


def test_closed_streams_are_no_fault():
    ended = run("specdemo race - <&-")
    assert ended.returncode == 1 and ended.stderr.startswith("specdemo: Standard input is closed")
    assert ended.stderr.count("\n") == 1
    assert run("specdemo export --help >&-").returncode == 0


# -- standard input and the command line -----------------------------------------------------------


def piped(raw):
    return SimpleNamespace(buffer=io.BytesIO(raw))


@pytest.mark.parametrize(
    "raw, said",
    [
        (b"What is \xff", "Standard input is not UTF-8 text (byte 9)"),
        (b"\xef\xbb\xbf\n", "The prompt is empty"),
        (b"", "The prompt is empty"),
        (b"x" * 50_000_001, "more than 50 MB"),
    ],
)
def test_what_is_no_prompt_on_standard_input_is_refused_before_anything_loads(
    no_engine, monkeypatch, capsys, raw, said
):
    monkeypatch.setattr(sys, "stdin", piped(raw))
    assert main(["race", "-"]) == 1 and said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["caf\udce9 ole"], ["x", "--stop", "\udcff"]])
def test_an_argument_that_is_no_text_is_refused_before_anything_loads(no_engine, capsys, words):
    assert main(["race", *words]) == 1
    said = capsys.readouterr().err
    assert "is not text at character" in said and said.count("\n") == 1


@pytest.mark.parametrize("raw", [b"Why?", b"Why?\n", b"\xef\xbb\xbfWhy?\r\n"])
def test_a_piped_prompt_is_the_prompt_of_the_argument(fake_engine, monkeypatch, raw):
    import specdemo.engine

    asked = []
    fake_engine()
    race = specdemo.engine.race
    monkeypatch.setattr(
        specdemo.engine, "race", lambda e, request: asked.append(request) or race(e, request)
    )
    monkeypatch.setattr(sys, "stdin", piped(raw))
    assert main(["race", "-"]) == main(["race", "Why?"]) == 0
    assert asked[0] == asked[1]


# -- the end of the work ---------------------------------------------------------------------------


def test_json_is_printed_before_the_trace_and_the_exit_code_tells_of_a_full_disk(
    fake_engine, tmp_path, capsys, monkeypatch
):
    fake_engine()

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "atomic_write", full)
    assert main(["race", "x", "--json", "--trace", str(tmp_path / "t.json")]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["method"] == "d2sd" and "No space left" in said.err


def test_a_trace_that_can_be_written_is_and_nothing_else_is_left(fake_engine, tmp_path):
    fake_engine()
    assert main(["race", "x", "--trace", str(tmp_path / "t.json")]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["t.json"]
    assert len(load_trace(tmp_path / "t.json")) == len(list(fake_events(tokens=12)))


@pytest.mark.parametrize("name", ["x" * 300, "taken"])
@pytest.mark.parametrize("command", ["race x --trace", "device --out"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_loads(
    no_engine, tmp_path, capsys, command, name
):
    (tmp_path / "taken").mkdir()
    assert main([*command.split(), str(tmp_path / name)]) == 1
    assert "name a file in a folder that is there and can be written" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_loads(
    no_engine, tmp_path, capsys, monkeypatch
):
    def denied(self, data):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", denied)
    assert main(["race", "x", "--trace", str(tmp_path / "t.json")]) == 1
    assert "(Permission denied); name a file" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["nope", "block,nope", "block,,"])
def test_device_refuses_its_methods_before_anything_loads(no_engine, capsys, method):
    assert main(["device", "--methods", method]) == 1
    assert "There is no method" in capsys.readouterr().err


def test_repeats_beyond_the_last_seed_are_refused_before_anything_loads(
    no_engine, tmp_path, capsys
):
    (tmp_path / "s.jsonl").write_text('{"turns": ["Hi"]}\n')
    words = ["bench", "--suite", str(tmp_path / "s.jsonl"), "--methods", "block"]
    seeds = ["--seed", str(2**31 - 1), "--repeats", "3"]
    assert main([*words, "--out", str(tmp_path / "o"), *seeds]) == 1
    assert "lower --seed or --repeats" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_command_without_a_terminal_says_what_it_is_doing(capsys):
    """A line for each phase; a fraction is no new one, and a name in brackets no markup."""
    with phases() as say:
        for message, fraction in (
            ("loading [bold]x[/]", None),
            ("fetching", 0.1),
            ("fetching", 0.2),
            ("Measuring", None),
        ):
            say(message, fraction)
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "specdemo: Loading [bold]x[/] …",
        "specdemo: Fetching …",
        "specdemo: Measuring …",
    ]
    assert said.out == ""


def test_slow_work_is_named_and_quick_work_is_not(capsys):
    with note_if_slow("Loading"):
        pass
    assert capsys.readouterr().err == ""
    with note_if_slow("Loading", after=0.0):
        end = time.monotonic() + 10
        while not (said := capsys.readouterr().err) and time.monotonic() < end:
            pass
    assert said == "specdemo: Loading …\n"


@pytest.mark.parametrize(
    "command",
    [["race", "Hi"], ["bench", "--suite", "s.jsonl", "--methods", "block", "--out", "o"]],
)
def test_commands_say_that_they_load(monkeypatch, tmp_path, capsys, command):
    import specdemo.engine

    def load_engine(*args, progress=None, **more):
        say = progress or next(filter(callable, args))
        say("Measuring one pass of the target", None)
        raise KeyboardInterrupt

    monkeypatch.setattr(specdemo.engine, "load_engine", load_engine)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.jsonl").write_text('{"turns": ["Hi"]}\n')
    assert main(command) == 130
    assert "specdemo: Measuring one pass of the target …\n" in capsys.readouterr().err


def test_an_unknown_option_names_the_help_of_its_command(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["race", "hi", "--max-tokens", "4"])
    assert "--max-tokens 4; “specdemo race --help” says" in capsys.readouterr().err
