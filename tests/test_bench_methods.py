"""What a bench is asked to do: methods with settings, and the order they run in."""

from __future__ import annotations

import pytest

from specdemo.bench.measure import method_order
from specdemo.bench.methods import method_title, parse_methods
from specdemo.errors import UserError


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
    assert method_title(block.label).endswith("(gamma=7)")


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
    assert [method_order("abc", 0, r) for r in (0, 1, 2)] == [list("abc"), list("cba"), list("abc")]
    assert {method_order("abc", p, 0)[0] for p in range(3)} == set("abc")
