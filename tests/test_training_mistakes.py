"""Training commands in the hands of people and on machines that are full: one sentence, and nothing
is lost.
"""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_training import parsed, periodic_corpus

from specdemo.errors import UserError, as_user_errors
from specdemo.files import LOCK
from specdemo.prompts import Prompt
from specdemo.training import bundle
from specdemo.training.corpus import add_arguments as corpus_arguments
from specdemo.training.corpus import corpus_main
from specdemo.training.data import write_shard
from specdemo.training.eval_text import written_passages
from specdemo.training.step_loss import StepLoss
from specdemo.training.train import add_arguments, train_main

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def target(target_folder, monkeypatch):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))


@pytest.fixture
def corpus(tmp_path):
    text = periodic_corpus(16)
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", text.tokens, text.answer)
    (tmp_path / "corpus" / "corpus.json").write_text(
        json.dumps({"row": text.tokens.shape[1], "target": "SmolLM2-135M-Instruct"})
    )
    return tmp_path / "corpus"


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--rows", 0), "at least 1"),
        (("--rows", -3), "at least 1"),
        (("--batch", -1), "at least 1"),
        (("--length", 4), "--length at least 16"),
        (("--length", 10**6), "lower --length"),
    ],
)
def test_sizes_that_cannot_be_written_are_refused(target, tmp_path, words, sentence):
    with pytest.raises(UserError, match=sentence):
        corpus_main(parsed(corpus_arguments, "--out", tmp_path / "c", *words))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("junk", ["", "{", "[1, 2]", "7"])
def test_a_damaged_corpus_is_left_as_it_is(target, tmp_path, junk):
    (tmp_path / "corpus.json").write_text(junk)
    with pytest.raises(UserError, match="damaged"):
        corpus_main(
            parsed(corpus_arguments, "--out", tmp_path, "--rows", 2, "--batch", 2, "--length", 32)
        )
    assert (tmp_path / "corpus.json").read_text() == junk


SMALL = (
    "--steps",
    2,
    "--layers",
    1,
    "--block-size",
    6,
    "--batch",
    2,
    "--anchors",
    3,
    "--draft-vocab",
    0,
    "--eval-rows",
    2,
    "--quiet",
)


def trained(corpus, out, *more):
    return train_main(parsed(add_arguments, "--corpus", corpus, "--out", out, *SMALL, *more))


@pytest.fixture
def run(target, corpus, tmp_path):
    assert trained(corpus, tmp_path / "run") == 0
    return tmp_path / "run"


def test_a_run_is_never_begun_over_another(run, corpus, capsys):
    before = {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
    with pytest.raises(UserError, match="holds a run already; go on with it by --resume"):
        trained(corpus, run)
    with pytest.raises(UserError, match="holds a run already"):
        trained(corpus, run, "--resume", run.parent / "elsewhere")
    capsys.readouterr()
    assert (
        trained(corpus, run, "--resume", run) == 0
        and "is finished and its drafter written; raise --steps" in capsys.readouterr().out
    )
    assert before == {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
    assert trained(corpus, run.parent / "branch", "--resume", run) == 0


@pytest.mark.parametrize(
    "option",
    [
        ("--kind", "vp"),
        ("--layers", 2),
        ("--block-size", 8),
        ("--lengths", 4, 6),
        ("--labels", "hard"),
        ("--batch", 4),
        ("--anchors", 5),
        ("--lr", 1e-3),
        ("--inverse-t",),
        ("--seed", 1),
        ("--streak-from", 0.5),
        ("--start", "random"),
        ("--rank", 8),
    ],
)
def test_a_resumed_run_does_not_drop_an_option_in_silence(run, corpus, option):
    with pytest.raises(UserError, match=f"{option[0]} .*which a resumed run keeps"):
        trained(corpus, run, "--resume", run, *option)
    with pytest.raises(UserError, match="counts steps, not minutes"):
        trained(corpus, run, "--resume", run, "--steps", 0, "--minutes", 1)


def test_a_run_remembers_how_it_began_however_often_it_is_resumed(target, corpus, tmp_path):
    out = tmp_path / "run"
    assert (
        trained(corpus, out, "--start", "random")
        == trained(corpus, out, "--resume", out, "--steps", 3)
        == trained(corpus, out, "--resume", out, "--steps", 4, "--start", "random")
        == 0
    )
    with pytest.raises(UserError, match="--start random, which a resumed run keeps"):
        trained(corpus, out, "--resume", out, "--steps", 5, "--start", "elsewhere")


def test_a_run_that_was_stopped_is_no_start(run, corpus, tmp_path):
    import shutil

    shutil.rmtree(run / "drafter")
    for start in (run, run / "drafter"):
        with pytest.raises(
            UserError, match=f"no finished drafter in {start}; .* go on with --resume {run}"
        ):
            trained(corpus, tmp_path / "next", "--start", start, "--layers", 0)
    with pytest.raises(UserError, match="no finished drafter in .*nowhere; give --start"):
        trained(corpus, tmp_path / "next", "--start", tmp_path / "nowhere")


def test_a_corpus_too_small_to_hold_out_says_so(target, tmp_path, capsys):
    text = periodic_corpus(1)
    write_shard(tmp_path, "", text.tokens, text.answer)
    (tmp_path / "corpus.json").write_text(
        json.dumps({"row": text.tokens.shape[1], "target": "SmolLM2-135M-Instruct"})
    )
    assert trained(tmp_path, tmp_path / "run") == 0
    said = capsys.readouterr().out
    assert (
        "on a row it was trained on, as the corpus is too small to hold any out" in said
        and "held-out" not in said
    )
    card = (tmp_path / "run" / "drafter" / "README.md").read_text()
    assert (
        "Scores on a row it was trained on" in card
        and "held-out" not in card
        and "| 1 row written" in card
    )


def test_an_output_that_is_a_file_is_named(target, corpus, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(UserError, match="taken is a file; give --out a folder"):
        corpus_main(
            parsed(
                corpus_arguments,
                "--out",
                tmp_path / "taken",
                "--rows",
                2,
                "--batch",
                2,
                "--length",
                32,
            )
        )
    with pytest.raises(UserError, match="taken is a file"):
        train_main(
            parsed(
                add_arguments,
                "--corpus",
                corpus,
                "--out",
                tmp_path / "taken",
                "--steps",
                1,
                "--layers",
                1,
                "--quiet",
            )
        )
    assert (tmp_path / "taken").read_text() == "mine"


def test_two_commands_on_one_folder(target, corpus, tmp_path):
    """The second is refused and changes nothing; when the first is killed, however hard, the folder
    is free.
    """
    hold = (
        "import sys; from pathlib import Path; from specdemo.files import locked_output_dir\nwith"
        " locked_output_dir(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    out = tmp_path / "out"
    commands = [
        lambda: corpus_main(
            parsed(corpus_arguments, "--out", out, "--rows", 2, "--batch", 2, "--length", 32)
        ),
        lambda: trained(corpus, out),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(out)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        assert first.stdout.readline() == b"held\n"
        for command in commands:
            with pytest.raises(
                UserError,
                match=(
                    "Another command is writing to .*out; wait until it has ended, or choose"
                    " another --out"
                ),
            ):
                command()
        assert [f.name for f in out.iterdir()] == [LOCK]
        first.kill()
    assert [command() for command in commands] == [0, 0]


def test_a_refused_command_leaves_no_empty_folder(target, corpus, tmp_path):
    with pytest.raises(UserError, match="--lengths must not be above"):
        trained(corpus, tmp_path / "out", "--lengths", 7)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("at", ["curve.svg", "README.md", "training.json", "config.json"])
def test_a_disk_that_fills_up_in_the_end_is_named_and_the_run_is_kept(
    target, corpus, tmp_path, at, monkeypatch
):
    real, out = Path.write_text, tmp_path / "run"

    def full(self, *words, **more):
        if self.name == at:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return real(self, *words, **more)

    options = (
        "--corpus",
        corpus,
        "--steps",
        2,
        "--layers",
        1,
        "--block-size",
        6,
        "--batch",
        2,
        "--anchors",
        3,
        "--draft-vocab",
        0,
        "--quiet",
    )
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match="No space left"):
        train_main(parsed(add_arguments, *options, "--out", out))
    monkeypatch.setattr(Path, "write_text", real)
    assert train_main(parsed(add_arguments, *options, "--resume", out, "--out", out)) == 0
    assert (out / "drafter" / "training.json").exists()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
            " bytes."
        ),
    ],
)
def test_memory_that_runs_out_is_named(target, corpus, tmp_path, error, monkeypatch):
    def greedy(self, step, progress):
        raise error

    monkeypatch.setattr(StepLoss, "block", greedy)
    with pytest.raises(UserError, match="lower --batch or --anchors"):
        train_main(
            parsed(
                add_arguments,
                "--corpus",
                corpus,
                "--out",
                tmp_path / "run",
                "--steps",
                2,
                "--layers",
                1,
                "--block-size",
                6,
                "--draft-vocab",
                0,
                "--quiet",
            )
        )


def test_errors_of_our_own_are_not_dressed_up(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"), as_user_errors(tmp_path, "nothing"):
        raise RuntimeError("shapes do not match")


def test_damaged_answers_are_written_again(tiny_loaded, tmp_path, monkeypatch):
    tiny_loaded.tokenizer.chat_template = None
    prompts = [Prompt("1", "x", "a b c")]
    first = written_passages(tiny_loaded, prompts, tmp_path, 0, new_tokens=5)
    for file, junk in zip(
        sorted(tmp_path.glob("passages-*.json")),
        ("{", '{"rows": [], "category": ["x"]}'),
        strict=True,
    ):
        file.write_text(junk)
    again = written_passages(tiny_loaded, prompts, tmp_path, 0, new_tokens=5)
    for how in ("greedy", "sampled"):
        assert (first[how].tokens == again[how].tokens).all()


def test_packing_never_deletes_what_is_no_bundle(corpus, tmp_path, capsys):
    home = tmp_path / "home"
    (home / "corpus").mkdir(parents=True)
    (home / "thesis.txt").write_text("years of work")
    words = ["pack", "--corpus", str(corpus), "--out", str(home)]
    assert bundle.main(words) == 2 and "choose an empty folder" in capsys.readouterr().err
    assert (home / "thesis.txt").read_text() == "years of work"
    (home / "thesis.txt").unlink()
    assert bundle.main(words) == 0 and bundle.main(words) == 0


def test_an_option_that_one_kind_refuses_is_refused_before_any_is_trained(tmp_path):
    with pytest.raises(UserError, match="leave --shape text out"):
        bundle.train_all(tmp_path, tmp_path / "out", 1, ["--shape", "text"], ("block", "ar"))
    assert not (tmp_path / "out").exists()
