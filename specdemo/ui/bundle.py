"""The renderer's ES modules as one script and its style sheets as one text: Gradio's component and
an exported page take a single script, with no build step and no network.
"""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"
ENTRY = "main.js"
STYLES = (
    "base.css",
    "score.css",
    "stage.css",
    "lanes.css",
    "strip.css",
    "player.css",
    "rounds.css",
    "scroller.css",
    "charts.css",
    "panels.css",
    "layout.css",
    "lesson.css",
    "lesson_more.css",
    "presenter.css",
    "room.css",
    "print.css",
)

IMPORT = re.compile(r'^import \{([^{}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) )", re.MULTILINE)
DECLARATION = re.compile(
    r"^(export )?(?:async )?(?:function|class|const|let) ([\w$]+)", re.MULTILINE
)
COMMENT = re.compile(r"^ *(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)
INDENT = re.compile(r"^\s+", re.MULTILINE)  # and empty lines
# behind code; with a quote in it, it may be part of a text
TRAILING = re.compile(r"(?<=[;{,]) // [^\n\"'`]*$", re.MULTILINE)
STYLE_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DECLARED = re.compile(r"^([\w-]+): ", re.MULTILINE)  # a style's property, at the line's beginning
LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundle(folder: Path = STATIC, entry: str = ENTRY) -> str:
    """The module ``entry`` with all that it imports, as one expression that evaluates to an object
    of the entry's exports. Comments and indentation are left out.

    Only what our modules need: ``import { a, b } from "./file.js";`` and ``export`` before a
    declaration. All modules share one scope.

    Raises:
        ValueError: another form of import or export, a circle of imports, an import that is not
            exported, a top-level name that two modules declare, a text over several lines.
    """
    sources = _in_order(folder, entry)
    exports: dict[str, set[str]] = {}
    declared: dict[str, str] = {}
    parts = []
    for name, source in sources.items():
        for names, origin in IMPORT.findall(source):
            for imported in _names(names):
                if imported not in exports[origin]:
                    raise ValueError(f"{name} imports {imported}, which {origin} does not export.")
        exports[name] = set()
        for exported, declaration in DECLARATION.findall(source):
            if other := declared.get(declaration):
                raise ValueError(f"{declaration} is declared in {other} and in {name}.")
            declared[declaration] = name
            if exported:
                exports[name].add(declaration)
        body = COMMENT.sub("", EXPORT.sub("", IMPORT.sub("", source)))
        if left := LEFT_OVER.search(body):
            raise ValueError(f"{name}: only named imports and exports are bundled: {left[0]}")
        if any(line.count("`") % 2 for line in body.splitlines()):
            raise ValueError(f"{name}: a text of several lines would lose its indentation.")
        parts.append(INDENT.sub("", TRAILING.sub("", body)).strip())
    entries = ", ".join(sorted(exports[entry]))
    return '(() => {\n"use strict";\n' + "\n\n".join(parts) + f"\n\nreturn {{ {entries} }};\n}})()"


def style(folder: Path = STATIC) -> str:
    """The style sheets, in the order in which they override each other, without comments,
    indentation and the space before a value.
    """
    sheets = [(folder / name).read_text(encoding="utf-8") for name in STYLES]
    return DECLARED.sub(r"\1:", INDENT.sub("", STYLE_COMMENT.sub("", "\n".join(sheets))))


def _in_order(folder: Path, entry: str) -> dict[str, str]:
    """Sources by file name, each after those that it imports."""
    done: dict[str, str] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise ValueError(f"These modules import each other: {circle}.")
        path.append(name)
        source = (folder / name).read_text(encoding="utf-8")
        for _, imported in IMPORT.findall(source):
            visit(imported)
        done[path.pop()] = source

    visit(entry)
    return done


def _names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
