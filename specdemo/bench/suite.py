"""Prompt files: one JSON object a line, as in Spec-Bench's ``question.jsonl`` or ``{"id",
"category", "turns", "source"}``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ..errors import UserError

MAX_BYTES, MAX_ITEMS = 50_000_000, 20_000
# the name of the total in reports, and of the category of prompts that name none
ALL, OTHER = "all", "other"


@dataclass(frozen=True)
class Item:
    """One prompt: the first turn of a conversation."""

    id: str
    category: str
    prompt: str


@dataclass(frozen=True)
class Suite:
    """A prompt file. ``sha256`` is of the file's bytes, so a report names exactly what was
    asked.
    """

    name: str
    sha256: str
    items: tuple[Item, ...]

    def first(self, limit: int | None) -> tuple[Item, ...]:
        """At most ``limit`` items (None = all), from the categories in turn: few prompts, or a run
        cut short, still cover all of them.
        """
        if limit is not None and limit < 1:
            raise UserError(f"--limit must be at least 1, not {limit}.")
        by_category: dict[str, list[Item]] = {}
        for item in self.items:
            by_category.setdefault(item.category, []).append(item)
        return tuple(
            item
            for item in chain.from_iterable(zip_longest(*by_category.values()))
            if item is not None
        )[:limit]


def load_suite(path: str | Path) -> Suite:
    """Read a prompt file; the first thing wrong with it is refused, with its line."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(
                f"{path} is larger than 50 MB; choose a prompt file with one JSON object a line."
            )
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UserError(
            f"The prompt file {path} cannot be read ({error.strerror}); check its name."
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is not UTF-8 text; choose a prompt file with one JSON object a line."
        ) from None
    items: list[Item] = []
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        item = _item(line, f"{path.name}, line {number}", number)
        if item.id in seen:
            raise UserError(
                f"{path.name}, line {number}: the id “{item.id}” occurs twice; give every prompt"
                " its own."
            )
        seen.add(item.id)
        items.append(item)
    if not items:
        raise UserError(
            f"{path} holds no prompts; it needs one JSON object a line with turns, and if you like"
            " category and id."
        )
    if len(items) > MAX_ITEMS:
        raise UserError(f"{path} holds {len(items)} prompts, more than {MAX_ITEMS}; split it.")
    return Suite(path.name, hashlib.sha256(raw).hexdigest(), tuple(items))


def _item(line: str, where: str, number: int) -> Item:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{where} is not JSON; a prompt file has one JSON object a line.") from None
    if not isinstance(data, dict):
        raise UserError(
            f"{where} is not a JSON object; it needs turns, and if you like category and id."
        )
    name = data.get("id", data.get("question_id", f"line {number}"))
    if isinstance(name, bool) or not isinstance(name, (str, int)) or name == "":
        raise UserError(
            f"{where}: an id must be a word or a whole number; correct it, or leave it out to"
            " number the prompt by its line."
        )
    category = data.get("category", OTHER)
    if not isinstance(category, str) or not category or category == ALL:
        raise UserError(
            f"{where}: category must be a word, and not “{ALL}”, which is the name of the total."
        )
    turns = data.get("turns")
    if (
        not isinstance(turns, list)
        or not turns
        or not isinstance(turns[0], str)
        or not turns[0].strip()
    ):
        raise UserError(
            f"{where}: turns must be a list whose first element is the prompt's text, for instance"
            ' "turns": ["Why is the sky blue?"].'
        )
    return Item(str(name), category, turns[0])


def from_prompts(prompts: Sequence[str | Item]) -> tuple[Item, ...]:
    """Items from plain texts, numbered."""
    return tuple(
        p if isinstance(p, Item) else Item(str(i), OTHER, p) for i, p in enumerate(prompts, 1)
    )
