"""What a load found is kept, and looked up only where it holds."""

from __future__ import annotations

import json
import os

import pytest
import torch

from specdemo.engine import load
from specdemo.engine.load import make_engine
from specdemo.engine.profile import Profile

pytestmark = pytest.mark.slow

torch.set_num_threads(1)


@pytest.fixture
def measured(monkeypatch):
    """How often targets were measured and checked; a measurement takes one turn."""
    count = {"calibrate": 0, "equal_widths": 0}

    calibrate, equal_widths = load.calibrate, load.equal_widths

    def one_turn(target, widths, threads, *_):
        count["calibrate"] += 1
        return calibrate(target, widths, threads, seconds=0.0)._replace(sure=True)

    def counted(target):
        count["equal_widths"] += 1
        return equal_widths(target)

    monkeypatch.setattr(load, "calibrate", one_turn)
    monkeypatch.setattr("specdemo.engine.engine.calibrate", one_turn)
    monkeypatch.setattr(load, "equal_widths", counted)
    return count


def files(folder):
    return sorted(folder.glob("*.json"))


def test_the_second_load_measures_nothing(tiny_loaded, tmp_path, measured):
    first = make_engine(tiny_loaded, profiles=tmp_path)
    second = make_engine(tiny_loaded, profiles=tmp_path)
    assert measured == {"calibrate": 1, "equal_widths": 1}
    for threads, costs in first.pace.curves.items():
        again = second.pace.curves[threads]
        assert (again.ms, again.one_row_ms, again.widths) == (
            costs.ms,
            costs.one_row_ms,
            costs.widths,
        )
    make_engine(tiny_loaded, profiles=tmp_path, remeasure=True)
    make_engine(tiny_loaded)
    assert measured["calibrate"] == 3 and len(files(tmp_path)) == 1


def test_the_library_is_asked_once(tiny_loaded, tmp_path, measured, monkeypatch):
    make_engine(tiny_loaded, profiles=tmp_path)
    monkeypatch.setattr(tiny_loaded.model, "forward", lambda *a, **k: pytest.fail("asked again"))
    make_engine(tiny_loaded, profiles=tmp_path)


@pytest.mark.parametrize(
    "change", ["weights", "code", "torch", "processor", "threads", "instructions"]
)
def test_anything_else_is_measured_anew(tiny_loaded, tmp_path, measured, monkeypatch, change):
    make_engine(tiny_loaded, profiles=tmp_path)
    if change == "weights":
        weight = tiny_loaded.model.model.layers[0].mlp.down_proj.weight
        before = weight.detach().clone()
        weight.data += 0.5
    elif change == "code":
        monkeypatch.setattr("specdemo.engine.profile.SOURCES", ("engine/cost.py",))
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "99")
    elif change == "processor":
        monkeypatch.setattr("specdemo.engine.profile.cpu_facts", lambda: "another")
    elif change == "threads":
        monkeypatch.setattr("specdemo.hardware.usable_cores", lambda: 2)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    else:
        monkeypatch.setitem(os.environ, "ONEDNN_MAX_CPU_ISA", "AVX2")
    make_engine(tiny_loaded, profiles=tmp_path)
    if change == "weights":
        weight.data.copy_(before)
    assert measured["calibrate"] == 2 and len(files(tmp_path)) == 2


def broken(text):
    data = json.loads(text)
    curve = next(iter(data["curves"].values()))
    yield "not JSON", text[: len(text) // 2]
    yield "another version", json.dumps(data | {"version": 2})
    yield "of another target", json.dumps(data | {"made_for": {"weights": "x"}})
    yield "no verify width", json.dumps(data | {"widths": [1, 2]})
    yield "no curves", json.dumps(data | {"curves": {}})
    yield "other threads", json.dumps(data | {"curves": {"7": curve}})
    yield "more than it should say", json.dumps(data | {"more": 1})
    for value in (0, -1, "NaN", None, "x"):
        bad = {"1": curve | {"one_row_ms": value}}
        yield f"one row: {value}", json.dumps(data | {"curves": bad})


def test_a_broken_or_foreign_file_is_replaced(tiny_loaded, tmp_path, measured):
    make_engine(tiny_loaded, profiles=tmp_path)
    (path,) = files(tmp_path)
    good = path.read_text()
    for number, (what, text) in enumerate(broken(good), 2):
        path.write_text(text)
        make_engine(tiny_loaded, profiles=tmp_path)
        assert measured["calibrate"] == number, what
        assert Profile.model_validate_json(path.read_bytes()), what
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_cannot_be_written_is_no_fault(tiny_loaded, tmp_path, measured):
    (tmp_path / "file").write_text("")
    assert make_engine(tiny_loaded, profiles=tmp_path / "file" / "profiles").costs.ms


def test_a_shipped_profile_is_read_and_never_written(tiny_loaded, tmp_path, measured, monkeypatch):
    make_engine(tiny_loaded, profiles=tmp_path / "shipped")
    monkeypatch.setenv("SPECDEMO_PROFILES", str(tmp_path / "shipped"))
    before = files(tmp_path / "shipped")[0].read_bytes()
    engine = make_engine(tiny_loaded, profiles=tmp_path / "own")
    assert measured["calibrate"] == 1 and not (tmp_path / "own").exists()
    engine.measure_again()
    assert files(tmp_path / "shipped")[0].read_bytes() == before and files(tmp_path / "own")


def test_faster_races_are_remembered(tiny_loaded, tmp_path, measured):
    engine = make_engine(tiny_loaded, profiles=tmp_path)
    width = engine.costs.widths[0]
    for factor in (3.0, 0.5):  # slower ones only until the program ends
        before = engine.pace.undisturbed[1].ms[width]
        engine.begin_race()
        for _ in range(8):
            engine.pace.note(width, engine.costs.ms[width] * factor, engine.costs.ms[width])
        if factor < 1:
            engine.pace.curves = dict(engine.pace.undisturbed)
        engine.end_race()
        again = make_engine(tiny_loaded, profiles=tmp_path)
        assert again.costs.ms[width] == pytest.approx(before * min(factor, 1.0))
