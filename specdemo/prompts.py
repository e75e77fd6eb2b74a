"""Prompts: what a text must be to be asked, and the one reader of prompt files.

A prompt file is JSON lines, as in Spec-Bench's ``question.jsonl``. A line holds ``turns`` (a list,
of which the first is asked), ``prompt``, or chat ``messages`` (of which the first user's is asked),
and optionally ``id`` (or ``question_id``) and ``category``.
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
from .files import read_at_most
from .paths import ROOT

MAX_BYTES, MAX_PROMPTS = 50_000_000, 20_000
ALL = "all"  # the name of the total in reports, so no category may have it
HELD_OUT = "held-out"  # the suite that comes with the project; no drafter is trained on it
OTHER = "other"  # the category of prompts that name none

_FIELD_ERRORS = {
    "id": "an id must be a word or a whole number; correct it, or leave it out to number the prompt"
    " by its line",
    "category": f"category must be a word, and not “{ALL}”, which is the name of the total",
    "turns": "turns must be a list whose first element is the prompt's text, for instance"
    ' "turns": ["Why is the sky blue?"]',
    "messages": "messages must be a list with a message of the user, for instance"
    ' "messages": [{"role": "user", "content": "Why is the sky blue?"}]',
}


def check_text(text: str, what: str) -> str:
    """``text`` itself.

    Args:
        what: names it in the sentence, as "The prompt".

    Raises:
        UserError: it holds bytes that were no text where it was typed, or half a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{what} is not text at character {error.start + 1} (it must be Unicode, in UTF-8"
            " where it comes from a file, a pipe or the command line); correct it there."
        ) from None
    return text


def clean_prompt(text: str) -> str:
    """``text`` without a byte order mark before it and without one newline at its end, which a file
    or a pipe adds and nobody means. Raises UserError, see :func:`check_text`.
    """
    text = check_text(text, "The prompt").removeprefix("\ufeff")
    end = next((end for end in ("\r\n", "\n", "\r") if text.endswith(end)), "")
    return text.removesuffix(end)


def decode_prompt(raw: bytes) -> str:
    """Standard input as text, in UTF-8. Raises UserError: it is not, or too long to be a prompt."""
    if len(raw) > MAX_BYTES:
        raise UserError("Standard input holds more than 50 MB, which no prompt is; pipe less.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"Standard input is not UTF-8 text (byte {error.start + 1}); convert it, for instance"
            " with iconv."
        ) from None


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
    def _other_forms(cls, data: Any) -> Any:
        """``prompt`` is the only turn; of ``messages`` the first user's is asked."""
        if not isinstance(data, dict) or "turns" in data:
            return data
        if "messages" in data and "prompt" not in data:
            return {**data, "turns": [_first_user_message(data["messages"])]}
        return {**data, "turns": [data.get("prompt")]}

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
        prompt = clean_prompt(turns[0]) if turns and isinstance(turns[0], str) else ""
        if not prompt.strip():
            raise ValueError
        return [prompt]


def _first_user_message(messages: Any) -> str | None:
    """The text of the first message whose role is ``user``; its parts joined where it has parts."""
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, list):
                parts = [part.get("text") if isinstance(part, dict) else None for part in content]
                texts = [text for text in parts if isinstance(text, str)]
                return "".join(texts) if len(texts) == len(parts) else None
            return content
    return None


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


def load_suite(name: str) -> PromptFile:
    """The prompts of a bench: a file, or ``held-out`` for those that come with the project.

    Raises:
        UserError: see :func:`load_prompts`.
    """
    if name == HELD_OUT and not Path(name).exists():
        return load_prompts(ROOT / "assets" / "prompts" / f"{HELD_OUT}.jsonl")
    return load_prompts(name)


def _read_bytes(path: Path) -> bytes:
    try:
        raw = read_at_most(path, MAX_BYTES)
    except OSError as error:
        raise UserError(
            f"The prompt file {path} cannot be read ({error.strerror}); check its name."
        ) from None
    if raw is None:
        raise UserError(
            f"{path} is larger than 50 MB; choose a prompt file with one JSON object a line."
        )
    return raw


def _parse_line(line: str, where: str, number: int) -> Prompt:
    try:
        data = _Line.model_validate_json(line)
    except ValidationError as errors:
        raise UserError(_sentence(errors.errors()[0], where, '"messages"' in line)) from None
    return Prompt(
        f"line {number}" if data.id is None else str(data.id), data.category, data.turns[0]
    )


def _sentence(error: Any, where: str, chat: bool) -> str:
    if error["type"] == "json_invalid" and "hex escape" in error["msg"]:
        return (
            f"{where} holds \\u and digits that stand for no character, as half of a surrogate"
            " pair does; correct it."
        )
    if error["type"] == "json_invalid":
        return f"{where} is not JSON; a prompt file has one JSON object a line."
    if not error["loc"]:
        return f"{where} is not a JSON object; it needs turns, and if you like category and id."
    field = error["loc"][0]
    if field == "turns" and chat:
        field = "messages"
    return f"{where}: {_FIELD_ERRORS['id' if field == 'question_id' else field]}."


def number_prompts(texts: Sequence[str | Prompt]) -> tuple[Prompt, ...]:
    """Plain texts as prompts, numbered from 1."""
    return tuple(
        text if isinstance(text, Prompt) else Prompt(str(number), OTHER, text)
        for number, text in enumerate(texts, 1)
    )
