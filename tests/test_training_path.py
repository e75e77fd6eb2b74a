"""From nothing to a drafter folder that races, and what a person can get wrong on the way."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_training import parsed, periodic_corpus

from specdemo.engine import race
from specdemo.engine.load import make_engine
from specdemo.errors import UserError
from specdemo.models.load import load_target
from specdemo.models.pairs import get_pair
from specdemo.request import Request
from specdemo.training.corpus import add_arguments as corpus_arguments
from specdemo.training.corpus import corpus_main
from specdemo.training.data import read_corpus, write_shard
from specdemo.training.options import add_arguments, settings_of
from specdemo.training.train import train_main

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_few_rows_are_written_alone(tmp_path, target_folder, monkeypatch, capsys):
    """Not as a part of as many as are usual, which would take many times as long."""
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    out = ("--out", tmp_path / "corpus", "--length", 32)
    assert corpus_main(parsed(corpus_arguments, *out, "--rows", 2)) == 0
    assert "2 rows of 32 tokens, 2 at once" in capsys.readouterr().out
    with pytest.raises(UserError, match="other settings.*--batch 2"):
        corpus_main(parsed(corpus_arguments, *out, "--rows", 20))


def assert_it_races(drafter, kind):
    """The path ends in a race: models.yaml names the folder, the drafter passes every check of a
    stranger's, and the text is the plain lane's.
    """
    engine = make_engine(
        load_target(replace(get_pair("smollm2-135m"), drafters={kind: str(drafter)}), "fp32")
    )
    for method in ("block", "tree", "specdiff") if kind == "block" else ("ar-draft",):
        done = list(race(engine, Request("w10 w20", method, max_new_tokens=12)))[-1]
        assert done.result["identical"] and done.result["spec"]["rounds"] > 0


def test_from_nothing_to_a_drafter_folder(target_folder, tmp_path, monkeypatch, capsys):
    from specdemo.models.drafters import read_drafter

    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"turns": [f"w{10 + i} w{20 + i}"], "category": "ab"[i % 2]}) + "\n"
            for i in range(4)
        )
    )
    corpus = tmp_path / "corpus"
    common = (
        "--out",
        corpus,
        "--length",
        96,
        "--batch",
        16,
        "--prompts",
        prompts,
        "--unique",
        0.05,
    )
    assert corpus_main(parsed(corpus_arguments, *common, "--rows", 16)) == 0
    first = read_corpus(corpus).tokens.copy()
    # goes on where it stopped
    assert corpus_main(parsed(corpus_arguments, *common, "--rows", 48)) == 0
    written = read_corpus(corpus)
    assert (
        len(written) > len(first) > 0
        and (written.tokens[: len(first)] == first).all()
        and written.answer.any(1).all()
    )
    with pytest.raises(UserError, match="other settings"):
        corpus_main(parsed(corpus_arguments, *common, "--rows", 64, "--seed", 1))
    about = (corpus / "corpus.json").read_text()
    for changes, words in (
        ({"target": "Another"}, "another target"),
        ({"written": "x"}, "damaged"),
    ):
        (corpus / "corpus.json").write_text(json.dumps(json.loads(about) | changes))
        with pytest.raises(UserError, match=words):
            corpus_main(parsed(corpus_arguments, *common, "--rows", 64))
    (corpus / "corpus.json").write_text(about)

    out = tmp_path / "run"
    options = (
        "--corpus",
        corpus,
        "--out",
        out,
        "--steps",
        6,
        "--batch",
        2,
        "--anchors",
        4,
        "--layers",
        1,
        "--block-size",
        6,
        "--draft-vocab",
        64,
        "--prompts",
        prompts,
        "--quiet",
    )
    assert train_main(parsed(add_arguments, "--kind", "vp", *options)) == 0
    assert "TFLOP a step" in capsys.readouterr().out
    net = read_drafter(out / "drafter")
    assert net.block_size == 6 and len(net.draft_vocab) == 64 and net.config.num_hidden_layers == 1
    assert_it_races(out / "drafter", "block")
    card = (out / "drafter" / "README.md").read_text()
    assert (
        "6 steps of 2 rows" in card
        and "| a |" in card
        and "sampled text" in card
        and (out / "drafter" / "curve.svg").exists()
    )

    assert (
        train_main(
            parsed(
                add_arguments,
                "--kind",
                "vp",
                *options[:4],
                "--resume",
                out,
                "--steps",
                9,
                "--prompts",
                prompts,
                "--quiet",
            )
        )
        == 0
    )
    assert json.loads((out / "drafter" / "training.json").read_text())["facts"]["steps"] == 9
    more = (
        "--corpus",
        corpus,
        "--out",
        tmp_path / "streak",
        "--start",
        out / "drafter",
        "--steps",
        2,
        "--quiet",
    )
    assert train_main(parsed(add_arguments, "--kind", "streak", *more)) == 0
    assert (
        read_drafter(tmp_path / "streak" / "drafter").draft_vocab.tolist()
        == net.draft_vocab.tolist()
    )
    with pytest.raises(UserError, match="choose another --kind"):
        train_main(
            parsed(add_arguments, "--kind", "ar", *more[:2], *more[4:], "--out", tmp_path / "other")
        )
    assert (
        train_main(
            parsed(
                add_arguments,
                "--kind",
                "ar",
                *options[:2],
                "--out",
                tmp_path / "ar",
                "--steps",
                2,
                "--layers",
                1,
                "--quiet",
            )
        )
        == 0
    )
    assert_it_races(tmp_path / "ar" / "drafter", "ar")


def test_what_a_person_can_get_wrong_is_refused_in_a_sentence(tmp_path, target_folder, monkeypatch):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    foreign = np.full((4, 16), 500, dtype=np.uint16)
    (tmp_path / "c").mkdir()
    write_shard(tmp_path / "c", "", foreign, foreign > 0)
    (tmp_path / "c" / "corpus.json").write_text('{"row": 16}')
    with pytest.raises(UserError, match="another target"):
        train_main(parsed(add_arguments, "--corpus", tmp_path / "c"))
    with pytest.raises(UserError, match="needs text"):
        train_main(parsed(add_arguments))
    with pytest.raises(UserError, match="no corpus"):
        train_main(parsed(add_arguments, "--corpus", tmp_path))
    for wrong, said in (
        (("--lengths", 1), "at least 2"),
        (("--kind", "ar", "--lengths", 5), "leave --lengths out"),
        (("--streak-from", 1.5), "from -1 to 1"),
        (("--minutes", 0), "above 0"),
        *(
            ((option, -1), f"{option} must be from")
            for option in ("--layers", "--batch", "--anchors", "--eval-rows")
        ),
    ):
        with pytest.raises(UserError, match=said):
            settings_of(parsed(add_arguments, *wrong), on_gpu=False)


def test_a_bundle_trains_every_kind_elsewhere(target_folder, tmp_path, monkeypatch, capsys):
    from specdemo.training import bundle

    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    corpus = periodic_corpus(40)
    (tmp_path / "corpus").mkdir()
    write_shard(tmp_path / "corpus", "", corpus.tokens, corpus.answer)
    (tmp_path / "corpus" / "corpus.json").write_text('{"row": 48}')
    assert (
        bundle.main(
            [
                "pack",
                "--corpus",
                str(tmp_path / "corpus"),
                "--out",
                str(tmp_path / "b"),
                "--rows",
                "20",
            ]
        )
        == 0
    )
    assert len(read_corpus(tmp_path / "b" / "corpus")) == 20
    words = [
        "train",
        "--bundle",
        str(tmp_path / "b"),
        "--out",
        str(tmp_path / "o"),
        "--steps",
        "2",
        "--batch",
        "2",
        "--anchors",
        "3",
        "--layers",
        "1",
        "--block-size",
        "6",
        "--draft-vocab",
        "0",
        "--quiet",
    ]
    assert bundle.main([*words, "--kinds", "block", "streak"]) == 0
    facts = json.loads((tmp_path / "o" / "streak" / "drafter" / "training.json").read_text())[
        "facts"
    ]
    assert facts["start"] == "the drafter in drafter" and not (tmp_path / "o" / "ar").exists()
    monkeypatch.setattr(
        bundle, "train_main", lambda args: pytest.fail("a finished kind was trained again")
    )
    assert bundle.main([*words, "--kinds", "block"]) == 0
    monkeypatch.setattr(bundle, "LIMIT", 100)
    assert (
        bundle.main(["pack", "--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "c")])
        == 2
        and "--rows" in capsys.readouterr().err
    )
