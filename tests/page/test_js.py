"""The page's scripts without a browser: their own unit tests, their agreement with Python, and how
they become one script.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import playwright
import pytest
from corrupt_traces import WRONG_TYPE, damaged
from fake_race import fake_events

from specdemo.errors import UserError
from specdemo.traces import dump_trace, migrate, parse_trace
from specdemo.ui.bundle import STATIC, STYLES, bundle, style
from specdemo.ui.lesson import STEPS

ROOT = Path(__file__).resolve().parents[2]
JS = ROOT / "tests" / "js"


def node(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the node that Playwright's wheel brings, or the one on the PATH."""
    name = "node.exe" if os.name == "nt" else "node"
    brought = Path(playwright.__file__).parent / "driver" / name
    program = str(brought) if brought.exists() else shutil.which("node")
    assert program, "neither Playwright nor the PATH has a node"
    return subprocess.run(
        [program, *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        check=False,
    )


def test_unit_tests_of_the_scripts():
    files = sorted(JS.glob("*.test.mjs"))
    assert len(files) >= 5
    done = node("--test", *files)
    assert done.returncode == 0, done.stdout + done.stderr


def read_by_page(texts: dict[str, str]) -> dict[str, dict]:
    """{"events"} or {"fault"} for each trace file."""
    done = node(JS / "agree.mjs", text=json.dumps(texts))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_page_and_command_line_refuse_with_the_same_sentence():
    whole = [e.to_dict() for e in fake_events(tokens=40)]
    damages = {name: (events, words) for name, events, words in damaged(whole)}
    assert len(damages) > 20
    texts = {name: dump_trace(events) for name, (events, _) in damages.items()}
    texts |= {
        "no JSON": "{",
        "another file": '{"format": "other"}',
        "no start": dump_trace(whole[1:]),
        "an unknown event": dump_trace([*whole[:3], {"kind": "sing"}]),
        "a later version": dump_trace(whole).replace('"version":2', '"version":9'),
    }
    page = read_by_page(texts)
    for name, text in texts.items():
        with pytest.raises(UserError) as refused:
            parse_trace(text)
        if name in WRONG_TYPE:  # Python names the field
            assert damages[name][1] in page[name]["fault"], name
        else:
            sentence = page[name]["fault"].replace("this page reads", "this app reads")
            assert sentence == str(refused.value), name


def test_page_and_command_line_migrate_alike():
    files = sorted((ROOT / "tests" / "data" / "traces_v1").glob("*.json.gz"))
    assert len(files) == 13
    texts = {p.name: gzip.decompress(p.read_bytes()).decode() for p in files}
    # half a race, and one that says less
    whole = json.loads(texts["best.json.gz"])
    texts["half"] = json.dumps(whole | {"events": whole["events"][:30]})
    start = {"kind": "start", "method": "best", "params": {"follow": "no", "markov_head": True}}
    texts["no costs"] = json.dumps(whole | {"events": [start, *whole["events"][1:]]})
    # costs that give the totals no prediction, another one, or one on the border of two roundings
    for name, changed in (
        ("wider than measured", {"cost_ms": {"1": 30.0}}),
        ("no baseline", {"cost_ms": {"1": 0, "64": 60.0}, "one_row_ms": 0}),
        ("a cost of zero", {"cost_ms": {"64": 0}, "one_row_ms": 20.0}),
        ("another width", {"ar_width": 8, "one_row_ms": None}),
        ("odd widths", {"cost_ms": {"1": 30.0, "x": 1.0, "-4": 2.0, "6.5": 3.0, "64": 70}}),
        ("ties", {"cost_ms": {"64": 1000.0}, "one_row_ms": 500.0}),
    ):
        start, *rest = whole["events"]
        for e in rest:  # 1000.125 has one digit too many
            e |= {"draft_seconds": 0.000125} if name == "ties" and e["kind"] == "verify" else {}
        texts[name] = json.dumps(whole | {"events": [start | changed, *rest]})
    done = [e for e in whole["events"] if e["kind"] in ("start", "prefill", "done")]
    done[-1]["result"] |= {"ar": None, "spec": None, "speedup": None}
    texts["no rounds"] = json.dumps(whole | {"events": done})
    page = read_by_page(texts)
    for name, text in texts.items():
        events = page[name]["events"]
        for ours, theirs in zip(events, migrate(json.loads(text))["events"], strict=True):
            assert ours | theirs == theirs, name  # Python fills in fields that are left out
            assert all(ours[key] == theirs[key] for key in ours), name


def test_every_figure_of_the_lesson_is_in_its_recording():
    """No text of the lesson is left out for want of a figure, and none keeps its braces."""
    script = f"""
      import {{ readFileSync }} from "node:fs";
      import {{ passQuestion, withFigures }} from "{STATIC.as_uri()}/lesson_figures.js";
      import {{ Trace }} from "{STATIC.as_uri()}/trace.js";
      const said = {json.dumps(STEPS)}.map((step) => {{
        const trace = new Trace();
        const path = "{(ROOT / "assets" / "traces").as_posix()}/" + step.trace + ".json";
        JSON.parse(readFileSync(path)).events.forEach((event) => trace.push(event));
        const wanted = [...step.text, ...(step.teacher || [])];
        const question = step.ask?.kind !== "pass" || passQuestion(trace);
        return [wanted, withFigures(wanted, trace), question];
      }});
      console.log(JSON.stringify(said));
    """
    done = node("--input-type=module", "-", text=script)
    assert done.returncode == 0, done.stderr
    for wanted, said, question in json.loads(done.stdout):
        assert len(said) == len(wanted) and question
        assert not any("{" in text for text in said), said


def test_the_page_is_one_script_and_one_style():
    script = bundle()
    done = node("--input-type=module", "--check", text=f"{script};")
    assert done.returncode == 0, done.stderr
    assert not [line for line in script.splitlines() if line.startswith(("import ", "export "))]
    assert script.rstrip().endswith("return { mountGradio, mountPage };\n})()")
    alone = {"raf_throttle.js", "page.css"}  # of the Gradio page around the view
    for file in STATIC.glob("*.js"):
        if file.name not in alone:
            declared = next(
                line for line in file.read_text(encoding="utf-8").splitlines() if "export " in line
            )
            assert declared.removeprefix("export ") in script, f"{file.name} is not in the bundle"
    assert {file.name for file in STATIC.glob("*.css")} - alone == set(STYLES)
    long = [f for f in STATIC.iterdir() if len(f.read_text(encoding="utf-8").splitlines()) > 400]
    assert not long
    assert (
        len(script) + len(style()) < 260_000
    )  # 75 kB on the wire; the first screen is measured in test_page_stage.py


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"main.js": 'import { a } from "./b.js";\n', "b.js": "const a = 1;\n"},
            "main.js imports a, which b.js does not export",
        ),
        (
            {
                "main.js": 'import { a } from "./b.js";\nfunction c() {}\n',
                "b.js": "export const a = 1;\nclass c {}\n",
            },
            "c is declared in b.js and in main.js",
        ),
        (
            {
                "main.js": 'import { a } from "./b.js";\nexport const c = 1;\n',
                "b.js": 'import { c } from "./main.js";\nexport const a = 1;\n',
            },
            "main.js -> b.js -> main.js",
        ),
        ({"main.js": 'import a from "./b.js";\n', "b.js": ""}, "only named imports"),
        ({"main.js": "export default 5;\n"}, "only named imports"),
        ({"main.js": 'import { a as b } from "./b.js";\n', "b.js": ""}, "a as b"),
    ],
    ids=["not exported", "declared twice", "a circle", "default import", "default export", "alias"],
)
def test_what_cannot_be_bundled_is_an_error(tmp_path, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        bundle(tmp_path)


def test_modules_stand_before_those_that_import_them(tmp_path):
    (tmp_path / "main.js").write_text(
        'import {\n  b,\n  c,\n} from "./b.js";\n/** Adds. */\nexport const sum = () => b + c;\n'
    )
    (tmp_path / "b.js").write_text(
        'import { d } from "./d.js";\n\nexport const b = d;\nexport const c = 3;\n// three\n'
    )
    (tmp_path / "d.js").write_text("export const d = 2;\n")
    done = node("--print", f"{bundle(tmp_path)}.sum()")
    assert done.stdout.strip() == "5"
    assert "Adds" not in bundle(tmp_path)
