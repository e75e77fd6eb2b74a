"""The structure of the project: which package may import which, sizes, and what the README says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "specdemo"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each package must not import, anywhere in its files.
PLAIN_DATA = {
    "torch",
    "gradio",
    "specdemo.models",
    "specdemo.engine",
    "specdemo.drafters",
    "specdemo.training",
    "specdemo.bench",
    "specdemo.ui",
}
FORBIDDEN = {
    "events.py": PLAIN_DATA,
    "totals.py": PLAIN_DATA,
    "traces.py": {
        "torch",
        "gradio",
        "specdemo.models",
        "specdemo.engine",
        "specdemo.training",
        "specdemo.bench",
        "specdemo.ui",
    },
    "attached": {
        "torch",
        "transformers",
        "gradio",
        "specdemo.engine",
        "specdemo.training",
        "specdemo.bench",
        "specdemo.ui",
    },
    "models": {
        "gradio",
        "specdemo.drafters",
        "specdemo.engine",
        "specdemo.training",
        "specdemo.bench",
        "specdemo.ui",
    },
    "drafters": {"gradio", "specdemo.engine", "specdemo.training", "specdemo.bench", "specdemo.ui"},
    "engine": {"gradio", "specdemo.training", "specdemo.bench", "specdemo.ui"},
    "training": {"gradio", "specdemo.bench", "specdemo.ui"},
    "bench": {"gradio", "specdemo.ui", "specdemo.training"},
    "ui": {"torch", "transformers", "specdemo.training"},
}


def imports(path: Path) -> set[str]:
    """Absolute names of everything a file imports, anywhere in it, except for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            node.body = []
    package = ["specdemo", *path.relative_to(PACKAGE).parent.parts]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {name} | {f"{name}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_dependencies_point_one_way(path):
    package = path.relative_to(PACKAGE).parts[0]
    banned = FORBIDDEN.get(package, set())
    bad = {
        name for name in imports(path) if any(name == b or name.startswith(b + ".") for b in banned)
    }
    assert not bad, f"{package} must not import {sorted(bad)}"


def test_a_wrong_import_is_found(tmp_path):
    assert "specdemo.ui.server" in imports_of("from ..ui import server", "engine/x.py", tmp_path)
    assert "torch" in imports_of("def f():\n    import torch", "ui/x.py", tmp_path)


def imports_of(code: str, where: str, tmp_path: Path) -> set[str]:
    probe = PACKAGE / where
    stand_in = type(
        "P",
        (),
        {
            "read_text": lambda self, encoding: code,
            "relative_to": lambda self, other: probe.relative_to(other),
        },
    )()
    return imports(stand_in)


def test_events_and_methods_load_without_torch_and_gradio():
    code = (
        "import sys, specdemo.events, specdemo.traces, specdemo.drafters, specdemo.attached.race;"
        " assert 'torch' not in sys.modules and 'gradio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def tracked(*patterns: str) -> list[Path]:
    run = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for line in run.stdout.splitlines() if (path := ROOT / line).exists()]


def test_files_and_functions_fit():
    """Files of at most 400 lines, functions of at most 60; ESLint counts those of JavaScript."""
    files = tracked("*.py", "*.js", "*.mjs", "*.css")
    assert len(files) > 150
    long = {str(p.relative_to(ROOT)): n for p in files if (n := len(lines(p))) > 400}
    assert not long
    functions = {}
    for path in tracked("specdemo/*.py", "app.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    functions[f"{path.relative_to(ROOT)}:{node.name}"] = length
    assert not functions


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_assets_fit_a_space():
    sizes = [path.stat().st_size for path in tracked("assets")]
    assert sizes and max(sizes) < 10_000_000 and sum(sizes) < 80_000_000


def test_readme_front_matter_and_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    import yaml

    front = yaml.safe_load(text.split("---\n")[1])
    assert (
        front["sdk"] == "gradio"
        and front["app_file"] == "app.py"
        and front["license"] == "apache-2.0"
    )
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    command = next(line for line in text.splitlines() if "pytest" in line and "pip install" in line)
    assert "README.md" in ci, "CI takes the test command from the README"
    assert command.count("\n") == 0


def test_no_text_points_to_a_document_that_is_not_there():
    """A drafter folder's own README.md and examples of file names are no pointers."""
    examples = {"README.md", "shapes.md"}
    texts = tracked("*.py", "*.js", "*.mjs", "*.md", "*.yaml")
    assert len(texts) > 200
    for path in texts:
        for name in re.findall(r"[\w./-]*\w\.md\b", path.read_text(encoding="utf-8")):
            there = [(folder / name).is_file() for folder in (ROOT, ROOT / "docs", path.parent)]
            assert any(there) or name in examples, f"{path.name} names {name}"
