"""Pictures and animations of a race."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_race import HOSTILE, fake_events
from PIL import Image
from test_js import JS, node

from specdemo.__main__ import main
from specdemo.errors import UserError
from specdemo.events import Start
from specdemo.lane_names import lane_names
from specdemo.pictures import block, export
from specdemo.pictures.draw import raster
from specdemo.pictures.race import Race, Token
from specdemo.pictures.scene import HEIGHT, WIDTH, Box, Label, Stage
from specdemo.pictures.text_lines import LaneLines
from specdemo.traces import load_trace
from specdemo.ui.picture_maker import PictureMaker

pytestmark = pytest.mark.slow

TRACES = Path(__file__).parent.parent / "assets" / "traces"
SVG = "{http://www.w3.org/2000/svg}"


def shipped(name: str) -> list:
    return load_trace(TRACES / f"{name}.json")


def test_the_cells_are_those_of_the_page():
    done = node(JS / "cells.mjs")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) == {path.stem for path in TRACES.glob("*.json")}
    for name, rows in said.items():
        rounds = Race(shipped(name)).rounds
        assert {row[0] for row in rows} == set(range(len(rounds)))
        for index, part, tokens, verdicts, own in rows:
            of = rounds[index]
            moment = block.moment_at(of, part)
            ours = block.cells(of, moment)
            where = f"{name}, round {index}, {part}"
            assert [cell.token for cell in ours] == tokens[: block.MAX_CELLS], where
            assert [cell.verdict for cell in ours] == verdicts[: block.MAX_CELLS], where
            mine = block.own_token(of, moment)
            assert (list(mine) if mine else None) == own, where


def test_ten_seconds_of_a_race_are_a_small_animation():
    data = export.picture(shipped("best"), "gif")
    assert len(data) < 3_000_000
    film = Image.open(io.BytesIO(data))
    assert film.size == (960, 540) and film.n_frames > 20 and film.info["loop"] == 0
    lasts = 0
    pictures = set()
    for k in range(film.n_frames):
        film.seek(k)
        lasts += film.info["duration"]
        pictures.add(film.convert("RGB").tobytes())
    assert lasts == pytest.approx(12_000, abs=200)  # and its end stays for two seconds
    assert len(pictures) > 20


def test_a_film_needs_its_package(monkeypatch, tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg")
    data = export.picture(shipped("lookup"), "mp4", seconds=1)
    assert data[4:8] == b"ftyp" and len(data) < 3_000_000
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    out = tmp_path / "race.mp4"
    assert main(["export", str(TRACES / "lookup.json"), str(out)]) == 1
    assert "pip install imageio-ffmpeg" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("dark", [False, True])
def test_a_still_shows_the_round_that_was_asked_for(dark):
    race = Race(shipped("block"))
    text = export.picture(shipped("block"), "svg", 3, dark=dark).decode()
    labels = [node.text for node in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert f"Round 3 of {len(race.rounds)}" in labels
    kept = [race.word(k["id"]).strip() for k in race.rounds[2].kept]
    assert set(kept) <= set(labels)
    best = export.picture(shipped("block"), "svg", dark=dark).decode()
    assert f"Round {race.round(None).index + 1} of" in best
    still = Image.open(io.BytesIO(export.picture(shipped("block"), "png", 3, dark=dark)))
    assert still.size == (2560, 1440)
    assert (max(still.convert("L").getpixel((5, 5)), 60) == 60) == dark


def test_text_of_a_model_is_never_markup():
    events = list(fake_events("<b>&\x00\u202e", words=HOSTILE, tokens=30))
    text = export.picture(events, "svg").decode()
    tree = ElementTree.fromstring(text)
    names = {"svg", "title", "rect", "text", "polyline"}
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= names
    labels = [node.text or "" for node in tree.iter(f"{SVG}text")]
    assert "<script>" in labels and "<b>&¤¤" in labels
    assert not any(c in text for c in "\x00\u202e\u2028")
    assert Image.open(io.BytesIO(export.picture(events, "png"))).size == (2560, 1440)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("x.png --round 99", "rounds 1 to"),
        ("x.svg --round 0", "there is no round 0"),
        ("x.gif --round 2", "whole race"),
        ("x.png --seconds 5", "a still has none"),
        ("x.gif --seconds 0", "from 1 to 60 seconds"),
        ("x.gif --seconds nan", "from 1 to 60 seconds"),
        ("x.pdf", "neither a page nor a picture"),
        ("x.", "neither a page nor a picture"),
        ("x.html --round 2", "are for pictures"),
        ("x.html --dark", "are for pictures"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(TRACES / "block.json"), *words.split()]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_race_without_a_round_has_no_picture():
    events = list(fake_events(tokens=40))
    for kind in ("png", "gif"):
        with pytest.raises(UserError, match="nothing to draw"):
            export.picture(events[:3], kind)
    cut = events[: next(i for i, e in enumerate(events) if e.kind == "verify") + 3]
    assert export.picture(cut, "png")  # Stop ended it in its second round


def test_lines_keep_words_together_and_nothing_leaves_the_lane():
    texts = ["The", " un", "believ", "able", "\n", "    return", " x" * 30, "y" * 200]
    lines = LaneLines([Token(text, "plain", 0.0) for text in texts], 20, 300)
    assert all(0 <= p.x and p.x + p.width <= 300.01 for p in lines.pieces if p.text != " ")
    at = {p.text: p for p in lines.pieces}
    assert at["un"].line == at["believ"].line == at["able"].line
    assert at["return"].x > 0, "an indentation is kept"
    assert "".join(p.text for p in lines.pieces if p.token == 7) == "y" * 200
    shown = lines.shown(len(texts), 3)
    assert {p.line for p in shown} == {0, 1, 2} and shown[-1].text.endswith("y")


def test_everything_is_on_the_screen_and_the_ratio_is_the_races_own():
    for name in ("best", "hard", "d2sd", "specdiff2"):
        race = Race(shipped(name))
        stage = Stage(race)
        for k in range(12):
            for shape in stage.at(race.end * k / 11):
                if isinstance(shape, Box):
                    assert 0 <= shape.x and shape.x + shape.w <= WIDTH
                    assert 0 <= shape.y and shape.y + shape.h <= HEIGHT
        told = race.done.result["speedup"]
        labels = [s.text for s in stage.at(race.end) if isinstance(s, Label)]
        assert f"{told:.2f}×" in labels
        assert raster(stage.at(race.end), "#ffffff", 0.1).size == (128, 72)


def test_the_page_draws_one_picture_at_a_time_and_none_beside_a_race():
    text = (TRACES / "lookup.json").read_text(encoding="utf-8")
    racing = False
    maker = PictureMaker(lambda: racing)
    drawn = maker.make(text, "svg", 1)
    assert base64.b64decode(drawn["data"]).startswith(b"<svg") and drawn["type"] == "image/svg+xml"
    assert "there is no round 99" in maker.make(text, "png", 99)["error"]
    assert "png, svg, gif or mp4" in maker.make(text, "exe", 1)["error"]
    assert set(maker.make("{", "png", 1)) == {"error"}
    with maker.lock:
        assert "Another picture" in maker.make(text, "svg", 1)["error"]
    racing = True
    assert "A race is being timed" in maker.make(text, "svg", 1)["error"]
    racing = False
    assert "data" in maker.make(text, "svg", "x")  # as without a round


def labels_of(shapes) -> list[str]:
    return [shape.text for shape in shapes if isinstance(shape, Label)]


def test_a_stills_ratio_is_the_races_own_or_said_to_be_so_far():
    """Also where it is against the one-row kernel, which is then named."""
    events = list(fake_events(tokens=60))
    result = events[-1].result
    result["ar"]["one_row_tokens_per_second"] = 1.2 * result["ar"]["tokens_per_second"]
    result["speedup"] /= 1.2
    race = Race(events)
    text = export.picture(events, "svg").decode()
    labels = [node.text for node in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert f"{result['speedup']:.2f}×" in labels and not any("so far" in s for s in labels)
    assert f"kernel: {result['ar']['one_row_tokens_per_second']:.1f} tok/s" in labels
    for lane in ("ar", "spec"):
        rate = f"{len(race.lanes[lane])} tokens, {result[lane]['tokens_per_second']:.1f} tokens/s"
        assert rate in labels
    early = labels_of(Stage(race).of_round(race.round(2)))
    assert "kernel, so far" in early


def test_a_picture_of_two_methods_shows_the_lanes_that_the_page_shows():
    events = list(fake_events(tokens=40, against={"method": "block", "params": {}, "weights": ""}))
    race = Race(events)
    labels = labels_of(Stage(race).at(race.end))
    against = events[-1].result["against"]
    assert {"block", "d2sd", "d2sd against block", "the left lane"} <= set(labels)
    assert f"{against['ratio']:.2f}×" in labels
    rate = against["spec"]["tokens_per_second"]
    assert f"{against['spec']['tokens']} tokens, {rate:.1f} tokens/s" in labels
    assert [t.text for t in race.lanes["against"]] == [t.text for t in race.lanes["spec"]]
    assert {t.source for t in race.lanes["against"]} & {"accepted", "correction"}
    assert all(of.verify.lane is None for of in race.rounds)


def test_lanes_of_one_method_are_told_apart():
    def named(ours, theirs):
        return lane_names(
            Start(
                method="d2sd",
                params=ours,
                against={"method": "d2sd", "params": theirs, "weights": ""},
            )
        )

    assert named({"gamma": 5, "branches": 3}, {"gamma": 5, "branches": 2}) == (
        "d2sd (branches=2)",
        "d2sd (branches=3)",
    )
    assert named({"gamma": 5}, {"gamma": 5}) == ("d2sd", "d2sd, once more")
