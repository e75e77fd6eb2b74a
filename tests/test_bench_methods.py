"""What a bench is asked to do, the order it runs in, and how busy the machine is meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specdemo.bench.machine import CpuMonitor
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


# -- the machine -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "own", "expected"),
    [
        ({"user": 8.0, "idle": 2.0}, 3.0, 0.5),
        ({"user": 8.0, "guest": 8.0, "idle": 1.0, "iowait": 1.0}, 3.0, 0.5),  # guest is in user
        ({"user": 4.0, "system": 4.0, "interrupt": 4.0, "idle": 2.0}, 3.0, 0.5),  # as on Windows
        ({"user": 2.0, "idle": 8.0}, 3.0, 0.0),  # clocks of different steps
        ({"user": 0.0, "idle": 0.0}, 0.0, None),
    ],
)
def test_the_load_of_other_programs_is_what_this_process_did_not_use(
    monkeypatch, machine, own, expected
):
    def at(seconds):
        times = SimpleNamespace(**{name: seconds * value for name, value in machine.items()})
        # half of it by a process that this one started
        half = SimpleNamespace(user=seconds * own / 2)
        child = SimpleNamespace(cpu_times=lambda: half)
        process = SimpleNamespace(cpu_times=lambda: half, children=lambda recursive: [child])
        monkeypatch.setattr("psutil.cpu_times", lambda: times)
        monkeypatch.setattr("psutil.Process", lambda: process)

    at(1)
    monitor = CpuMonitor()
    at(2)
    assert monitor.other_load() == expected
