"""Counts of a task's n-grams: counted, written, read back from files that may be anything, and what
DiffuSpec makes of them.
"""

import argparse
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny import PROMPT, engine_for, write
from tiny_models import make_tiny_drafter, make_tiny_tokenizer
from tiny_training import periodic_corpus

from specdemo.__main__ import main
from specdemo.commands.options import add_pair, pair_of
from specdemo.drafters import METHODS
from specdemo.drafters.diffuspec import search, task_model
from specdemo.drafters.parts.ngram import NgramModel
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.models.ngram_file import count_ngrams, read_ngrams, vocabulary_digest, write_ngrams
from specdemo.models.pairs import load_pairs
from specdemo.training.data import write_shard

pytestmark = pytest.mark.usefixtures("one_thread")


def test_ngrams_are_counted_within_texts_alone():
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 5, n) for n in (40, 2, 0, 3, 30)]
    wanted = Counter(tuple(t[i : i + 3].tolist()) for t in texts for i in range(len(t) - 2))
    ids, counts = count_ngrams(texts, 5)
    assert dict(zip(map(tuple, ids.tolist()), counts.tolist(), strict=True)) == wanted
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)
    some, most = count_ngrams(texts, 5, most=4)
    assert some.tolist() == ids[:4].tolist() and most.tolist() == counts[:4].tolist()
    # large vocabularies do not overflow
    assert count_ngrams([[200_000, 1, 199_999]], 200_001)[0].tolist() == [[200_000, 1, 199_999]]


def test_a_model_of_counts_is_the_one_of_the_text_and_the_texts_own_falls_back_on_it():
    text = np.random.default_rng(1).integers(0, 6, 200).tolist()
    online, counted = NgramModel(3, 8), NgramModel(3, 8)
    online.extend_to(text)
    for row, count in zip(*(x.tolist() for x in count_ngrams([text], 8)), strict=True):
        counted.add(row, count)
    for history in ([], [1], [1, 2], [7, 2], text[-2:]):
        found = [counted.prob(history, v) for v in range(8)]
        assert sum(found) == pytest.approx(1)
        assert found == pytest.approx([online.prob(history, v) for v in range(8)], abs=0.02)
    both = NgramModel(3, 8, counted)
    assert both.prob([1, 2], 3) == counted.prob([1, 2], 3)
    both.extend_to([1, 2, 7, 1, 2, 7])
    assert sum(both.prob([1, 2], v) for v in range(8)) == pytest.approx(1)
    assert both.prob([1, 2], 7) > counted.prob([1, 2], 7) and both.prob([5], 3) > 0


def test_the_search_follows_the_tasks_ngrams_where_the_drafter_is_undecided():
    task = NgramModel(3, 8)
    task.add([1, 2, 6], 3)
    task.add([2, 6, 5], 3)
    lattice = [[(4, 0.3), (6, 0.3)], [(6, 0.3), (5, 0.3)]]
    for base, ids in ((task, (6, 5)), (None, (4, 6))):
        best = search(lattice, NgramModel(3, 8, base), [1, 2], 2, 0.5)[0]
        assert best.ids == ids


GOOD = {"ids": np.array([[1, 2, 3]], np.int32), "counts": np.array([2], np.int32)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ids": np.array([[1, 2, 128]], np.int32)}, "ids that are no tokens"),
        ({"ids": np.array([[1, -2, 3]], np.int32)}, "ids that are no tokens"),
        ({"counts": np.array([0], np.int32)}, "counts below 1"),
        ({"counts": np.array([2, 2], np.int32)}, "do not fit"),
        ({"ids": np.zeros((1, 2), np.int32)}, "do not fit"),
        ({"ids": np.zeros((0, 3), np.int32), "counts": np.zeros(0, np.int32)}, "do not fit"),
        ({"counts": np.array([2.0], np.float32)}, "not int32"),
        ({"more": np.array([2], np.int32)}, "no n-gram counts"),
        ("order", "no n-gram counts"),
        ("vocabulary", "another target's tokenizer"),
        ("bytes", "cannot be used"),
        ("missing", "No such file"),
    ],
)
def test_a_file_that_is_anything_else_is_refused_in_a_sentence(tmp_path, change, says):
    tokenizer, path = make_tiny_tokenizer(), tmp_path / "n.safetensors"
    about = {"order": "3", "vocabulary": vocabulary_digest(tokenizer)}
    if change == "bytes":
        path.write_bytes(b"\xff" * 40)
    elif change != "missing":
        if isinstance(change, str):
            about[change], change = "4", {}
        save_file(GOOD | change, path, metadata=about)
    with pytest.raises(UserError, match=says) as found:
        read_ngrams(path, tokenizer, 128)
    assert "\n" not in str(found.value)


def test_diffuspec_searches_with_the_counts_that_the_pair_names(tiny_loaded, tiny_target, tmp_path):
    engine = engine_for(Target(tiny_target))
    plain = write(engine, max_new=24).output
    file = tmp_path / "n.safetensors"
    whole = np.array([*PROMPT, *plain])
    write_ngrams(file, *count_ngrams([whole], 128), tiny_loaded.tokenizer)
    folder = save_drafter(make_tiny_drafter(tiny_target, bound=False), tmp_path / "d", "#")
    for named in (None, str(file)):
        pair = replace(tiny_loaded.pair, drafters={"block": str(folder)}, ngram=named)
        loaded = replace(tiny_loaded, pair=pair, networks={})
        method = METHODS["diffuspec"]
        params = method.parse_params({"mix": 0, "tau": 1})
        drafter = method.build(loaded, params)
        assert ("n-grams of a task" in drafter.weights) == (named is not None)
        lane = write(engine, drafter, max_new=24)
        assert lane.output == plain
        # read once, and what its search falls back on
        assert drafter.model.base is task_model(loaded) and (named is None) == (not drafter.task)


def test_the_command_counts_texts_and_corpora(target_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    (tmp_path / "a.txt").write_text("w10 w11 w12 w10 w11 w12")
    (tmp_path / "b.jsonl").write_text('{"text": "w10 w11 w12"}\n\n{"text": "w7"}\n')
    text = periodic_corpus(5)
    (corpus := tmp_path / "corpus").mkdir()
    write_shard(corpus, "", text.tokens, text.answer)
    (corpus / "corpus.json").write_text(json.dumps({"row": 48}))
    out = tmp_path / "n.safetensors"
    words = ["ngram", *(str(tmp_path / n) for n in ("a.txt", "b.jsonl", "corpus"))]
    assert main([*words, "--out", str(out)]) == 0
    assert "name it in models.yaml under ngram:" in capsys.readouterr().out
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target_folder)
    ids, counts = read_ngrams(out, tokenizer, 128)
    found = dict(zip(map(tuple, ids.tolist()), counts.tolist(), strict=True))
    assert found[10, 11, 12] == 3 and sum(counts) == 4 + 1 + 5 * 42
    (tmp_path / "b.jsonl").write_text('{"text": "w10"}\n[1]\n')
    assert main([*words, "--out", str(out)]) == 1
    assert "Line 2 of" in capsys.readouterr().err


def test_models_yaml_names_the_file_beside_itself(tmp_path):
    entry = "{title: T, license: L, size: S, target: {path: t}, ngram: counts/n.safetensors}"
    (tmp_path / "m.yaml").write_text(f"pairs: {{a: {entry}}}")
    assert load_pairs(tmp_path / "m.yaml")["a"].ngram == str(
        (tmp_path / "counts/n.safetensors").resolve()
    )


def test_a_race_may_name_a_tasks_counts(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    add_pair(parser)
    monkeypatch.chdir(tmp_path)
    pair = pair_of(parser.parse_args(["--ngram", "task.safetensors"]))
    assert pair.ngram == str(tmp_path / "task.safetensors")
    assert pair_of(parser.parse_args([])).ngram is None
    engine = "{kind: vllm, plain: 'http://127.0.0.1:1', speculative: 'http://127.0.0.1:2'}"
    entry = f"{{title: T, license: L, size: S, engine: {engine}}}"
    (tmp_path / "m.yaml").write_text(f"pairs:\n  a: {entry}\n")
    monkeypatch.setenv("SPECDEMO_MODELS", str(tmp_path / "m.yaml"))
    with pytest.raises(UserError, match="leave --ngram out"):
        pair_of(parser.parse_args(["--ngram", "task.safetensors"]))
