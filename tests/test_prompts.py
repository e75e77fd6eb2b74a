"""Prompt files: both forms are read, and junk is refused with its line."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from fake_runners import write

from specdemo.errors import UserError
from specdemo.paths import ROOT
from specdemo.prompts import Prompt, clean_prompt, load_prompts, load_suite
from specdemo.request import Request


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
        ([{"turns": "Why is it so?"}], "line 1: turns must be a list"),
        ([{"prompt": ["p"]}], "line 1: turns must be a list"),
        ([{"messages": "p"}], "line 1: messages must be a list"),
        ([{"messages": [{"role": "system", "content": "p"}]}], "line 1: messages"),
        ([{"messages": [{"role": "user", "content": [{"type": "image"}]}]}], "line 1: messages"),
        ([{"messages": [7, {"role": "user"}]}], "line 1: messages"),
        ([GOOD, '{"turns": ["\\ud83d"]}'], "line 2 holds .*no character"),
        ([GOOD, '{"turns": ["p"], "id": "\\ude00"}'], "line 2 holds .*no character"),
        (['{"turns": ["p"], "more": ' + "[" * 9000 + "]" * 9000 + "}"], "line 1 is not JSON"),
        ([{"turns": ["\ufeff\n"]}], "turns"),
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


SAME = "Why\u2028is\u0085the\x0bsky \U0001f600?"


@pytest.mark.parametrize(
    "row",
    [
        {"turns": [SAME, "later"]},
        {"prompt": SAME},
        {"prompt": "\ufeff" + SAME + "\r\n"},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": SAME}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": SAME}]}]},
    ],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_every_form_of_a_file_gives_the_same_prompt(tmp_path, row, ascii):
    (tmp_path / "s.jsonl").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(row, ensure_ascii=ascii).encode() + b"\r\n"
    )
    assert load_prompts(tmp_path / "s.jsonl").prompts == (Prompt("line 1", "other", SAME),)


@pytest.mark.parametrize("text", ["q", "q\n", "q\r\n", "\ufeffq\n", "\ufeffq"])
def test_what_a_file_or_pipe_adds_is_not_part_of_a_prompt(text):
    assert clean_prompt(text) == "q" == Request(text).prompt
    assert clean_prompt("\n q \n\n") == "\n q \n", "what was typed stays"


def test_the_suite_of_the_project_is_the_one_that_was_measured(tmp_path, monkeypatch):
    """Changing a prompt makes earlier reports of it incomparable; docs/measuring.md names it."""
    suite = load_suite("held-out")
    assert f"sha256 {suite.sha256}" in (ROOT / "docs" / "measuring.md").read_text("utf-8")
    counts = Counter(prompt.category for prompt in suite.prompts)
    assert len(counts) == 9 and set(counts.values()) == {12}
    assert len({prompt.text for prompt in suite.prompts}) == 108
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held-out").write_text('{"prompt": "Mine"}\n')
    assert [p.text for p in load_suite("held-out").prompts] == ["Mine"], "a file comes first"
    with pytest.raises(UserError, match="cannot be read"):
        load_suite("held-back")
