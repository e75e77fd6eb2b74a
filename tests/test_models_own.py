"""Targets of one's own from the command line: their thinking mode, and devices that cannot run."""

import argparse
import json

import pytest
from tiny_models import make_byte_tokenizer

from specdemo.commands.options import add_pair, pair_of
from specdemo.errors import UserError
from specdemo.models.chat import check_thinking, prompt_ids
from specdemo.models.load import load_target
from specdemo.models.own_pair import chosen_pair

SWITCH = "{{ messages[0].content }}{% if enable_thinking %}|a|{% else %}|b|{% endif %}"


def options(*words):
    parser = argparse.ArgumentParser()
    add_pair(parser)
    return parser.parse_args(words)


def test_the_thinking_mode_reaches_the_template(tmp_path):
    tokenizer = make_byte_tokenizer(SWITCH)
    pairs = {
        words: pair_of(options("--target", str(tmp_path), *words))
        for words in ((), ("--thinking", "on"), ("--thinking", "off"))
    }
    assert [pair.thinking for pair in pairs.values()] == [None, True, False]
    asked = [tokenizer.decode(prompt_ids(tokenizer, "x", p.thinking)) for p in pairs.values()]
    assert ["a" in text for text in asked] == [False, True, False]


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", None])
def test_a_switch_that_a_template_does_not_know_is_refused(template):
    tokenizer = make_byte_tokenizer(template)
    check_thinking(tokenizer, None)
    for thinking, word in ((True, "on"), (False, "off")):
        with pytest.raises(UserError, match=f"cannot be turned {word}"):
            check_thinking(tokenizer, thinking)


def test_a_target_of_ones_own_refuses_it_when_it_is_loaded(target_folder, monkeypatch):
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    pair = chosen_pair("smollm2-135m", str(target_folder), None, thinking=True)
    with pytest.raises(UserError, match="cannot be turned on"):
        load_target(pair, "fp32", "cpu")


def test_the_usual_pairs_keep_their_mode():
    assert chosen_pair("qwen3-8b", None, None).thinking is False
    assert chosen_pair("qwen3-8b", None, None, thinking=True).thinking is True


def test_a_hub_id_keeps_its_sizes_unknown_until_it_is_here(monkeypatch, tmp_path):
    from specdemo.models.needs import fits

    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    found = fits(chosen_pair("smollm2-135m", "owner/never-seen", None))
    assert {fit.verdict for fit in found} == {"not known"}
    assert json.dumps([fit.to_dict() for fit in found]) and "once its files" in found[0].text
    listed = fits(chosen_pair("smollm2-135m", "Qwen/Qwen3-8B", None))
    assert all(fit.needs and fit.needs.target > 4e9 for fit in listed)


def test_a_place_is_never_the_folder_one_happens_to_be_in():
    for empty in ("", "  "):
        with pytest.raises(UserError, match="The target has no name; give a folder, or a hub id"):
            chosen_pair("smollm2-135m", empty, None)
    for written in ("owner/name", "hub:owner/name"):  # as models.yaml has it
        assert chosen_pair("smollm2-135m", written, None).target == ({"hub": "owner/name"},)
