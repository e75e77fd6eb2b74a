"""Depths and block lengths compared: trained on one budget, compared by tokens and
milliseconds together.
"""

import json

import pytest
import torch
from test_training_mistakes import corpus, target  # noqa: F401 - fixtures
from tiny_models import make_tiny_drafter

from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.training import sweep
from specdemo.training.initialize import init_drafter

pytestmark = pytest.mark.usefixtures("one_thread")


def test_shapes_are_trained_evaluated_and_resumed(target, corpus, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "shapes"
    words = [
        "--corpus",
        str(corpus),
        "--out",
        str(out),
        "--layers",
        "1",
        "2",
        "--slots",
        "5",
        "8",
        "--rows",
        "4",
        "--steps",
        "3",
        "--batch",
        "2",
        "--anchors",
        "4",
        "--draft-vocab",
        "0",
        "--quiet",
    ]
    assert sweep.main(words) == 0
    rows = json.loads((out / "shapes.json").read_text())["rows"]
    assert [(r["layers"], r["slots"], r["chain"]) for r in rows] == [
        (n, s, c) for n in (1, 2) for s, chains in ((5, (3,)), (8, (3, 5, 7))) for c in chains
    ]
    assert all(
        1 <= r["tokens_per_round"] <= r["chain"] + 1 and r["draft_ms"] > 0 and r["speedup"] > 0
        for r in rows
    )
    table = (out / "shapes.md").read_text()
    assert table.count("\n") == 6 and table.strip() in capsys.readouterr().out
    predicted = [float(line.split("|")[-2]) for line in table.splitlines()[2:]]
    assert predicted == sorted(predicted, reverse=True)
    before = {f: f.stat().st_mtime_ns for f in out.glob("*/drafter/training.json")}
    assert sweep.main(words) == 0 and before == {
        f: f.stat().st_mtime_ns for f in out.glob("*/drafter/training.json")
    }, "what is finished is not trained again"


def test_each_drafter_stands_in_the_table_once_at_its_best():
    rows = [
        {
            "layers": n,
            "slots": 8,
            "chain": c,
            "tokens_per_round": t,
            "draft_ms": d,
            "pass_ms": 30.0,
            "speedup": x,
        }
        for n, c, t, d, x in (
            (2, 3, 1.5, 2.0, 1.2),
            (2, 7, 1.6, 2.5, 1.1),
            (4, 3, 1.8, 4.0, 1.0),
            (4, 7, 2.0, 5.0, 1.3),
        )
    ]
    assert [line.split("|")[1:4] for line in sweep.table(rows).splitlines()[2:]] == [
        [" 4 ", " 8 ", " 7 "],
        [" 2 ", " 8 ", " 3 "],
    ]


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--layers", "0"), "at least 1"),
        (("--slots", "3"), "at least 4"),
        (("--rows", "0"), "at least 1"),
        ((), "no corpus"),
    ],
)
def test_what_cannot_be_compared_is_refused(target, tmp_path, capsys, words, sentence):  # noqa: F811
    assert sweep.main(["--corpus", str(tmp_path), "--out", str(tmp_path / "o"), *words]) == 1
    assert sentence in capsys.readouterr().err


def test_fewer_layers_of_a_drafter_are_kept(tiny_target, tmp_path):
    net = make_tiny_drafter(tiny_target, layers=3)
    save_drafter(net, tmp_path / "d", "card", int8=False)
    short, began = init_drafter(tiny_target, "block", str(tmp_path / "d"), 2, 0, None)
    assert (
        "layers 0, 2 are kept" in began
        and short.config.num_hidden_layers == 2 == len(short.config.layer_types)
        and [layer.index for layer in short.layers] == [0, 1]
    )
    assert torch.equal(
        short.layers[1].mlp.up_proj.weight,
        net.layers[2].mlp.up_proj.weight.to(torch.bfloat16).float(),
    )
    save_drafter(short, tmp_path / "s", "card")
    assert len(init_drafter(tiny_target, "block", str(tmp_path / "s"), 0, 0, None)[0].layers) == 2
    with pytest.raises(UserError, match="at most that"):
        init_drafter(tiny_target, "block", str(tmp_path / "d"), 4, 0, None)
