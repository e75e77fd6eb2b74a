"""Prompt files: both forms are read, and junk is refused with its line."""

from __future__ import annotations

import pytest
from fake_runners import write

from specdemo.errors import UserError
from specdemo.prompts import Prompt, load_prompts


def test_a_file_is_read_in_both_forms_and_takes_the_first_turn(tmp_path):
    rows = [
        {
            "question_id": 81,
            "category": "writing",
            "turns": ["a \u2028 b", "later"],
            "reference": [],
        },
        {"id": "x/1", "category": "qa", "turns": ["b"], "source": "s"},
    ]
    prompts = load_prompts(write(tmp_path / "question.jsonl", *rows, ""))
    assert prompts.prompts == (Prompt("81", "writing", "a \u2028 b"), Prompt("x/1", "qa", "b"))
    assert prompts.name == "question.jsonl" and len(prompts.sha256) == 64


def test_prompts_without_an_id_are_numbered_by_their_line(tmp_path):
    prompts = load_prompts(
        write(tmp_path / "s.jsonl", {"turns": ["p"]}, "", {"turns": ["q"], "category": "a"})
    )
    assert [prompt.id for prompt in prompts.prompts] == ["line 1", "line 3"]


def test_a_line_may_hold_one_prompt_instead_of_turns(tmp_path):
    prompts = load_prompts(write(tmp_path / "s.jsonl", {"prompt": "p", "category": "a"}))
    assert prompts.prompts == (Prompt("line 1", "a", "p"),)


def test_a_limit_takes_the_categories_in_turn(tmp_path):
    rows = [
        {"id": f"{c}{i}", "category": c, "turns": ["p"]}
        for c, n in (("a", 3), ("b", 1), ("c", 2))
        for i in range(n)
    ]
    prompts = load_prompts(write(tmp_path / "s.jsonl", *rows))
    assert [prompt.id for prompt in prompts.first(5)] == ["a0", "b0", "c0", "a1", "c1"]
    assert prompts.first(None) == prompts.first(99) and len(prompts.first(99)) == 6
    with pytest.raises(UserError, match="at least 1"):
        prompts.first(0)


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
        load_prompts(write(tmp_path / "s.jsonl", *lines))


def test_files_that_cannot_be_prompts_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_prompts(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        load_prompts(tmp_path)
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        load_prompts(tmp_path / "b")
