"""What a bench is asked to do: prompt files, methods with settings, and the order they run in."""

from __future__ import annotations

import pytest
from fake_lanes import write

from specdemo.bench import load_suite
from specdemo.bench.lanes import parse_methods
from specdemo.bench.run import order
from specdemo.bench.suite import Item
from specdemo.errors import UserError

# -- prompt files ----------------------------------------------------------------------------------


def test_suite_reads_both_forms_and_takes_the_first_turn(tmp_path):
    rows = [
        {
            "question_id": 81,
            "category": "writing",
            "turns": ["a \u2028 b", "later"],
            "reference": [],
        },
        {"id": "x/1", "category": "qa", "turns": ["b"], "source": "s"},
    ]
    suite = load_suite(write(tmp_path / "question.jsonl", *rows, ""))
    assert suite.items == (Item("81", "writing", "a \u2028 b"), Item("x/1", "qa", "b"))
    assert suite.name == "question.jsonl" and len(suite.sha256) == 64


def test_prompts_without_an_id_are_numbered_by_their_line(tmp_path):
    suite = load_suite(
        write(tmp_path / "s.jsonl", {"turns": ["p"]}, "", {"turns": ["q"], "category": "a"})
    )
    assert [i.id for i in suite.items] == ["line 1", "line 3"]


def test_a_limit_takes_the_categories_in_turn(tmp_path):
    rows = [
        {"id": f"{c}{i}", "category": c, "turns": ["p"]}
        for c, n in (("a", 3), ("b", 1), ("c", 2))
        for i in range(n)
    ]
    suite = load_suite(write(tmp_path / "s.jsonl", *rows))
    assert [i.id for i in suite.first(5)] == ["a0", "b0", "c0", "a1", "c1"]
    assert suite.first(None) == suite.first(99) and len(suite.first(99)) == 6
    with pytest.raises(UserError, match="at least 1"):
        suite.first(0)


GOOD = {"id": "1", "category": "a", "turns": ["p"]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no prompts"),
        (["not json"], "line 1 is not JSON"),
        ([GOOD, "[" * 5000], "line 2 is not JSON"),
        (["[1]"], "not a JSON object"),
        *(
            ([{**GOOD, "id": wrong}], "line 1: an id must be")
            for wrong in (True, "", 1.5, None, ["x"])
        ),
        ([{**GOOD, "id": "line 2"}, {"turns": ["q"]}], "line 2.*twice"),
        ([{**GOOD, "category": 3}], "category"),
        ([{**GOOD, "category": "all"}], "name of the total"),
        ([{**GOOD, "turns": "p"}], "turns"),
        ([{**GOOD, "turns": []}], "turns"),
        ([{**GOOD, "turns": [" "]}], "turns"),
        ([{**GOOD, "turns": [{"text": "p"}]}], "turns"),
        ([GOOD, "", GOOD], "line 3.*twice"),
    ],
)
def test_junk_is_refused_with_its_line(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        load_suite(write(tmp_path / "s.jsonl", *lines))


def test_files_that_cannot_be_prompts_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_suite(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        load_suite(tmp_path)
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        load_suite(tmp_path / "b")


# -- methods ---------------------------------------------------------------------------------------


def test_methods_with_settings():
    block, point = parse_methods(
        "ar, block:gamma=7 ,specdiff2:rule=point-mass:drafts=4,block:gamma=7"
    )
    assert (block.label, block.method, block.rule, block.params) == (
        "block:gamma=7",
        "block",
        "match",
        {"gamma": "7"},
    )
    assert (point.method, point.rule, point.params) == ("specdiff2", "point-mass", {"drafts": "4"})
    assert block.title.endswith("(gamma=7)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one"),
        ("ar", "at least one"),
        ("nope", "no method"),
        ("block:gamma", "not a setting"),
        ("block:gamma=1e9", "gamma"),
        ("block:x=1", "no parameter"),
        ("block:rule=ratio", "ratio"),
    ],
)
def test_methods_that_cannot_run_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_methods(text)


def test_the_order_alternates():
    assert [order("abc", 0, r) for r in (0, 1, 2)] == [list("abc"), list("cba"), list("abc")]
    assert {order("abc", p, 0)[0] for p in range(3)} == set("abc")
