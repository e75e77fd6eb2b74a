"""A report as a reader takes it away."""

from __future__ import annotations

import base64
import csv
import io
import json

import pytest

from specdemo.bench.files import by_speed, downloads, report_csv
from specdemo.bench.html import download_links, fragment
from specdemo.bench.report import load_report
from specdemo.paths import ROOT


@pytest.fixture(scope="module")
def report():
    return load_report(ROOT / "assets" / "bench" / "2026-11-held-out-18-prompts.json")


def test_methods_are_sorted_by_their_speed_and_nothing_else_changes(report):
    ordered = by_speed(report)
    speeds = [row["all"]["speedup"] for row in ordered["table"].values()]
    assert speeds == sorted(speeds, reverse=True) and list(ordered["table"]) != list(
        report["table"]
    )
    assert list(ordered["methods"]) == list(ordered["table"]) == list(ordered["paired"])
    assert ordered == report  # as values


def test_the_table_has_a_line_for_each_method_and_category(report):
    lines = list(csv.DictReader(io.StringIO(report_csv(report))))
    assert len(lines) == len(report["table"]) * (1 + len(report["categories"]))
    (best,) = [line for line in lines if (line["method"], line["category"]) == ("best", "all")]
    figures = report["table"]["best"]["all"]
    assert float(best["speedup"]) == figures["speedup"]
    assert [float(best["low"]), float(best["high"])] == figures["interval"]
    assert best["weights"] == report["methods"]["best"]["weights"]


def test_each_row_says_which_weights_it_runs_on_and_the_files_are_there(report):
    html = fragment(report)
    speedups = html[html.index("Speed-up (summed") :]
    row = speedups[speedups.index(">SpecDiff<") :]
    assert "as there are none trained for mdlm yet" in row[: row.index("</tr>")]
    links = download_links(report)
    for words, name, address in downloads(report):
        assert f'download="{name}" href="{address}">{words}<' in links
        text = base64.b64decode(address.partition("base64,")[2]).decode()
        assert text == report_csv(report) or json.loads(text)["format"] == "specdemo-bench"
