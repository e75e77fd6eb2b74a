"""Prompt files: JSON lines, as in Spec-Bench's ``question.jsonl``.

A line holds ``turns`` (a list, of which the first is asked) or ``prompt``, and optionally ``id``
(or ``question_id``) and ``category``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from .errors import UserError

MAX_BYTES, MAX_PROMPTS = 50_000_000, 20_000
ALL = "all"  # the name of the total in reports, so no category may have it
OTHER = "other"  # the category of prompts that name none

_FIELD_ERRORS = {
    "id": "an id must be a word or a whole number; correct it, or leave it out to number the prompt"
    " by its line",
    "category": f"category must be a word, and not “{ALL}”, which is the name of the total",
    "turns": "turns must be a list whose first element is the prompt's text, for instance"
    ' "turns": ["Why is the sky blue?"]',
}


@dataclass(frozen=True)
class Prompt:
    """One user message to answer."""

    id: str
    category: str
    text: str


@dataclass(frozen=True)
class PromptFile:
    """The prompts of a file. ``sha256`` is of the file's bytes, so that a report names exactly what
    was asked.
    """

    name: str
    sha256: str
    prompts: tuple[Prompt, ...]

    def first(self, limit: int | None) -> tuple[Prompt, ...]:
        """At most ``limit`` prompts (None = all), taken from the categories in turn: few prompts,
        or an interrupted run, still cover every category.

        Raises:
            UserError: ``limit`` is less than 1.
        """
        if limit is not None and limit < 1:
            raise UserError(f"--limit must be at least 1, not {limit}.")
        by_category: dict[str, list[Prompt]] = {}
        for prompt in self.prompts:
            by_category.setdefault(prompt.category, []).append(prompt)
        in_turn = chain.from_iterable(zip_longest(*by_category.values()))
        return tuple(prompt for prompt in in_turn if prompt is not None)[:limit]


class _Line(BaseModel):
    """One line of a prompt file; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    id: Annotated[str, Field(min_length=1)] | int | None = Field(
        None, validation_alias=AliasChoices("id", "question_id")
    )
    category: Annotated[str, Field(min_length=1)] = OTHER
    turns: list[Any]

    @model_validator(mode="before")
    @classmethod
    def _prompt_is_the_only_turn(cls, data: Any) -> Any:
        if isinstance(data, dict) and "turns" not in data:
            return {**data, "turns": [data.get("prompt")]}
        return data

    @field_validator("id", mode="before")
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise ValueError
        return value

    @field_validator("category")
    @classmethod
    def _not_the_total(cls, value: str) -> str:
        if value == ALL:
            raise ValueError
        return value

    @field_validator("turns")
    @classmethod
    def _begins_with_text(cls, turns: list[Any]) -> list[Any]:
        if not turns or not isinstance(turns[0], str) or not turns[0].strip():
            raise ValueError
        return turns


def load_prompts(path: str | Path) -> PromptFile:
    """Read a prompt file.

    Raises:
        UserError: names the first fault with its line.
    """
    path = Path(path)
    raw = _read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is not UTF-8 text; choose a prompt file with one JSON object a line."
        ) from None
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        prompt = _parse_line(line, f"{path.name}, line {number}", number)
        if prompt.id in prompts:
            raise UserError(
                f"{path.name}, line {number}: the id “{prompt.id}” occurs twice; give every prompt"
                " its own."
            )
        prompts[prompt.id] = prompt
    if not prompts:
        raise UserError(
            f"{path} holds no prompts; it needs one JSON object a line with turns, and if you like"
            " category and id."
        )
    if len(prompts) > MAX_PROMPTS:
        raise UserError(f"{path} holds {len(prompts)} prompts, more than {MAX_PROMPTS}; split it.")
    return PromptFile(path.name, hashlib.sha256(raw).hexdigest(), tuple(prompts.values()))


def _read_bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(
                f"{path} is larger than 50 MB; choose a prompt file with one JSON object a line."
            )
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"The prompt file {path} cannot be read ({error.strerror}); check its name."
        ) from None


def _parse_line(line: str, where: str, number: int) -> Prompt:
    try:
        data = _Line.model_validate_json(line)
    except ValidationError as errors:
        raise UserError(_sentence(errors.errors()[0], where)) from None
    return Prompt(
        f"line {number}" if data.id is None else str(data.id), data.category, data.turns[0]
    )


def _sentence(error: Any, where: str) -> str:
    if error["type"] == "json_invalid":
        return f"{where} is not JSON; a prompt file has one JSON object a line."
    if not error["loc"]:
        return f"{where} is not a JSON object; it needs turns, and if you like category and id."
    field = error["loc"][0]
    return f"{where}: {_FIELD_ERRORS['id' if field == 'question_id' else field]}."


def number_prompts(texts: Sequence[str | Prompt]) -> tuple[Prompt, ...]:
    """Plain texts as prompts, numbered from 1."""
    return tuple(
        text if isinstance(text, Prompt) else Prompt(str(number), OTHER, text)
        for number, text in enumerate(texts, 1)
    )
