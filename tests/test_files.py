"""Names of files that a person gives: links, pipes, names that nothing can have."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from specdemo.__main__ import main
from specdemo.errors import UserError
from specdemo.files import atomic_write, check_output, read_json
from specdemo.models.fetch import find_target
from specdemo.models.own_pair import with_drafter
from specdemo.models.pairs import get_pair, load_pairs
from specdemo.paths import ROOT, cache_root, given_path
from specdemo.prompts import load_prompts
from specdemo.traces import load_trace

TRACE = ROOT / "assets" / "traces" / "ar.json"
NO_NAMES = ["~no-such-user/x", "a\0b", "x" * 300, "y/" * 2100]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(Path("elsewhere") / "file")
    for text in ("first", "second"):
        check_output(tmp_path / "link", "It")
        atomic_write(tmp_path / "link", text)
        assert (tmp_path / "elsewhere" / "file").read_text() == text
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2 and len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe, got = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    check_output(pipe, "It")  # waits for nobody
    reader.start()
    atomic_write(pipe, "all of it")
    reader.join(10)
    assert got == ["all of it"] and pipe.is_fifo() and len(list(tmp_path.iterdir())) == 1


def test_a_page_may_go_to_the_standard_output():
    command = [sys.executable, "-m", "specdemo", "export", str(TRACE), "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.lower().startswith("<!doctype html>"), done.stderr


def test_two_processes_that_write_one_file_leave_one_of_both(tmp_path):
    text = "import sys; from pathlib import Path; from specdemo.files import atomic_write\n"
    text += "for n in range(150): atomic_write(Path(sys.argv[1]), sys.argv[2] * 200_000)"
    writers = [
        subprocess.Popen([sys.executable, "-c", text, str(tmp_path / "f"), letter], cwd=ROOT)
        for letter in "ab"
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if (tmp_path / "f").exists():
            whole = (tmp_path / "f").read_text()
            seen.add((len(whole), len(set(whole))))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {(200_000, 1)} and [file.name for file in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("words", ["models", "models --json", f"export {TRACE} /dev/full"])
def test_a_full_disk_behind_the_output_is_said_in_a_sentence(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "specdemo", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert done.stderr.startswith("specdemo: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_nothing_can_have_is_said_in_a_sentence(name, monkeypatch, tmp_path):
    with pytest.raises(UserError, match="The thing cannot be .* correct that name"):
        given_path(name, "The thing")
    with pytest.raises(UserError, match="The drafter cannot be"):
        with_drafter(get_pair("smollm2-135m"), name)
    entry = 'pairs: {a: {title: T, license: L, size: S, target: {path: "%s"}}}'
    (tmp_path / "m.yaml").write_text(entry % name.replace("\0", "\\0"))
    with pytest.raises(UserError, match="A folder in .* cannot be"):
        load_pairs(tmp_path / "m.yaml")
    if "\0" not in name:  # no environment can hold it
        pair = get_pair("smollm2-135m")
        for variable, use in (
            ("SPECDEMO_CACHE", cache_root),
            ("SPECDEMO_TARGET_DIR", lambda: find_target(pair)),
            ("SPECDEMO_MODELS", load_pairs),
        ):
            monkeypatch.setenv(variable, name)
            with pytest.raises(UserError, match="correct that name"):
                use()
            monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    "command",
    [
        f"export {TRACE} NAME",
        "export NAME x.html",
        "bench --suite S --methods lookup --out NAME",
        "corpus --rows 1 --out NAME",
        "train --kind block --corpus C --out NAME",
        "train --kind block --corpus NAME --out o",
        "device --out NAME",
        "race hi --trace NAME",
    ],
)
def test_a_name_that_is_too_long_is_said_by_every_command(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "S").write_text('{"prompt": "hi"}\n')
    words = ["x" * 300 if word == "NAME" else word for word in command.split()]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "File name too long" in said and said.count("\n") == 1


def test_a_name_that_can_be_is_kept(tmp_path):
    assert given_path("~", "It") == Path.home()
    assert given_path("a/b", "It", tmp_path) == tmp_path / "a" / "b"
    assert given_path(tmp_path / "none" / "none", "It") == tmp_path / "none" / "none"


@pytest.mark.parametrize(
    "settings",
    [{"SPECDEMO_MODELS": "/none"}, {"GRADIO_SERVER_PORT": "abc"}, {"GRADIO_SERVER_PORT": "99999"}],
)
def test_the_page_says_in_a_sentence_why_it_does_not_start(settings):
    done = subprocess.run(
        [sys.executable, "app.py"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode and "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("app.py: ")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (load_trace, "larger than 20 MB"),
        (load_prompts, "larger than 50 MB"),
        (load_pairs, "larger than a list of models"),
    ],
)
def test_a_device_that_never_ends_is_not_read_to_its_end(read, words, monkeypatch):
    monkeypatch.setattr("specdemo.traces.MAX_TRACE_BYTES", 1000)
    monkeypatch.setattr("specdemo.prompts.MAX_BYTES", 1000)
    with pytest.raises(UserError, match=words):
        read("/dev/zero")
    monkeypatch.setattr("specdemo.files.MAX_JSON_BYTES", 1_000_000)
    with pytest.raises(ValueError, match="larger than 1 MB"):
        read_json(Path("/dev/zero"))
