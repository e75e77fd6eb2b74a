"""Scores of runs and drafters on the same held-out rows, and a drafter out of an unfinished run."""

import json

import numpy as np
import pytest
import torch
from tiny_training import parsed, periodic_corpus

from specdemo.errors import UserError
from specdemo.models.drafters import read_drafter
from specdemo.training import checkpoint, score
from specdemo.training.behind import behind_passages, prompts_behind
from specdemo.training.data import split, write_shard
from specdemo.training.options import add_arguments
from specdemo.training.train import train_main

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(target_folder, tmp_path, monkeypatch):
    """A run of three steps that averages its weights, and its corpus."""
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setattr(score, "BOOTSTRAPS", 40)
    corpus = periodic_corpus(600)
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", corpus.tokens, corpus.answer)
    (tmp_path / "corpus" / "corpus.json").write_text('{"row": 48}')
    assert len(split(corpus)[1]) > 2
    words = "--steps 3 --batch 2 --anchors 3 --layers 1 --block-size 6 --draft-vocab 0 --quiet"
    words += " --average 0.99 --lr 0.01"
    where = ("--corpus", tmp_path / "corpus", "--out", tmp_path / "run")
    assert train_main(parsed(add_arguments, *where, *words.split())) == 0
    return tmp_path


def test_a_run_and_its_drafter_score_alike_and_a_run_is_exported(run, capsys):
    words = [str(run / "run"), "--corpus", str(run / "corpus"), "--rows", "4", "--chain", "5"]
    assert score.main([str(run / "run" / "drafter"), *words, "--export", str(run / "out")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {run}")]
    finished, unfinished = (line.split("|")[2].strip() for line in lines)
    assert float(finished.split()[0]) == pytest.approx(float(unfinished.split()[0]), rel=0.1)
    tensors = checkpoint.read(run / "run")[1]
    written = read_drafter(run / "out").state_dict()
    name = "layers.0.mlp.up_proj.weight"
    average, last = tensors[f"average.{name}"], tensors[f"net.{name}"]
    assert (written[name].float() - average).norm() < 0.5 * (written[name].float() - last).norm()
    card = (run / "out" / "README.md").read_text()
    assert "3 steps of 2 rows" in card and "mixed text" in card
    assert score.main([*words[1:], str(run / "out"), "--export", str(run / "again")]) == 1
    assert "finished drafter" in capsys.readouterr().err
    assert score.main([*words, "--rows", "0"]) == 1 and "--behind" in capsys.readouterr().err


def test_an_interval_holds_its_value_and_pairs_by_row():
    counts = np.array([[10, 20], [10, 15], [20, 25], [5, 12]])
    low, high = score.interval(counts)
    assert low < score.tokens_per_round(counts) == 72 / 45 < high
    better = counts * [1, 2]
    assert score.interval(better, counts) == pytest.approx((2, 2))


def test_prompts_stand_behind_other_rows_from_a_turn_on(tiny_target, tmp_path):
    held_out = periodic_corpus(4)
    held_out.tokens[:, 0] = 1  # opens a turn
    held_out.tokens[1, 20] = 1
    prompts = prompts_behind(held_out, 32, 2)
    prompt = held_out.tokens[0, :4].tolist()
    assert prompts[0] == held_out.tokens[1, 20:].tolist() + prompt
    assert prompts_behind(held_out, 3, 2)[0] == prompt

    class Loaded:
        model, device = tiny_target, torch.device("cpu")

    texts = behind_passages(Loaded(), held_out, 32, 2, tmp_path)
    assert texts.tokens[0, : len(prompts[0])].tolist() == prompts[0]
    assert texts.answer[0].argmax() == len(prompts[0]) and texts.answer.sum(1).max() <= 64
    logits = tiny_target(torch.from_numpy(texts.tokens[:1, : len(prompts[0])])).logits
    assert texts.tokens[0, len(prompts[0])] == int(logits[0, -1].argmax())
    file = tmp_path / "behind-32-2.json"
    kept = json.loads(file.read_text())
    kept[0][0][-1] = 1000
    file.write_text(json.dumps(kept))
    assert behind_passages(Loaded(), held_out, 32, 2, tmp_path).tokens.max() == 1000


def test_a_folder_that_is_neither_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds neither a drafter nor a run"):
        score.read_candidate(tmp_path, torch.device("cpu"))
