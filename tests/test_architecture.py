"""The house keeps its rooms: who may import whom, and what may stand at the top."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "specdemo"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each room must not import (architecture.md). `heavy` names are third-party.
FORBIDDEN = {
    "events.py": {
        "torch",
        "gradio",
        "specdemo.models",
        "specdemo.engine",
        "specdemo.drafters",
        "specdemo.training",
        "specdemo.bench",
        "specdemo.ui",
    },
    "traces.py": {
        "torch",
        "gradio",
        "specdemo.models",
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
    room = path.relative_to(PACKAGE).parts[0]
    banned = FORBIDDEN.get(room, set())
    bad = {
        name for name in imports(path) if any(name == b or name.startswith(b + ".") for b in banned)
    }
    assert not bad, f"{room} must not know {sorted(bad)}"


def test_the_rule_has_teeth(tmp_path):
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
        "import sys, specdemo.events, specdemo.traces, specdemo.drafters;"
        " assert 'torch' not in sys.modules and 'gradio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_file_sizes():
    """A room stays readable: files under 400 lines, assets under what a Space accepts."""
    long = {
        str(p.relative_to(ROOT)): n
        for p in FILES
        if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long
    tracked = [
        ROOT / line
        for line in subprocess.run(
            ["git", "ls-files", "assets"], cwd=ROOT, capture_output=True, text=True
        ).stdout.splitlines()
    ]
    sizes = {p: p.stat().st_size for p in tracked if p.exists()}
    assert all(size < 10_000_000 for size in sizes.values()) and sum(sizes.values()) < 80_000_000


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
