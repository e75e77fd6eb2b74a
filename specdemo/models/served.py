"""The part ``engine`` of an entry of ``models.yaml``: a target that an engine serves elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..errors import UserError

EngineKind = Literal["llama.cpp", "vllm", "sglang", "trtllm", "transformers"]
KINDS: tuple[EngineKind, ...] = get_args(EngineKind)
TITLES: dict[EngineKind, str] = {
    "llama.cpp": "llama.cpp",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "transformers": "transformers serve",
}
METHOD = "served"  # what a race, a bench and a link call the engine's own way to draft
ATTACH = "SPECDEMO_ATTACH"  # set to 1, a public Space takes engines too
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Served:
    """Where an engine answers.

    Attributes:
        plain, speculative: addresses of its two endpoints, without a slash at the end. They stay
            in this process: no event, trace or sentence for a visitor holds them.
        model: the name under which the engine serves the target; empty: whatever it serves.
        key_env: the environment variable that holds the key, or empty.
        drafts: what the speculative endpoint drafts with, in words for people.
        together: both endpoints are on machines of their own, so that their lanes may run at the
            same time.
    """

    kind: EngineKind
    plain: str
    speculative: str
    model: str = ""
    key_env: str = ""
    drafts: str = ""
    together: bool = False

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @property
    def where(self) -> str:
        """Where the engine runs, as far as its addresses tell."""
        hosts = [urlsplit(address).hostname or "" for address in (self.plain, self.speculative)]
        here = all(h in ("localhost", "::1") or h.startswith("127.") for h in hosts)
        return "this machine" if here else "another machine"

    def key(self, env: Mapping[str, str] = os.environ) -> str:
        """The key, or an empty text where none is needed.

        Raises:
            UserError: the variable is not set, or no header can hold what it says.
        """
        if not self.key_env:
            return ""
        key = env.get(self.key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise UserError(
                f"The environment variable {self.key_env}, which holds the engine's key, is not set"
                " (or not plain text); set it and start SpecDemo again."
            )
        return key


def attach_allowed(env: Mapping[str, str] = os.environ) -> bool:
    """Whether pairs with an engine are offered: everywhere but on a public Space, and there where
    it is switched on.
    """
    return not env.get("SPACE_ID") or env.get(ATTACH) == "1"


def checked_address(value: str) -> str:
    """The address of an endpoint without the slash or ``/v1`` at its end.

    Raises:
        ValueError: it is none, with what it must be.
    """
    text = value.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or port == 0:
        raise ValueError(
            "an address like http://10.0.0.5:8000, with neither user name, query nor fragment"
        )
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("an address without spaces")
    return text.removesuffix("/v1").rstrip("/")


def checked_variable(value: str) -> str:
    """Raises ValueError: it is no name of an environment variable, perhaps a key itself."""
    if not _VARIABLE.fullmatch(value):
        raise ValueError("the name of an environment variable, never the key itself")
    return value


class _Engine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: EngineKind
    plain: Annotated[str, AfterValidator(checked_address)]
    speculative: Annotated[str, AfterValidator(checked_address)] | None = None
    model: str = ""
    key_env: Annotated[str, AfterValidator(checked_variable)] | None = None
    drafts: str = ""
    together: bool = False


class ServedEntry(BaseModel):
    """A pair with ``engine`` instead of ``target``, as it stands in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[str, Field(min_length=1)]
    engine: _Engine
    license: str = "see the model's card"
    size: str | None = None
    hardware: str | None = None
    notes: str | None = None

    def served(self) -> Served:
        """Raises ValueError: the two endpoints do not fit the engine."""
        engine = self.engine
        if engine.speculative is None and engine.kind != "transformers":
            raise ValueError(
                "engine needs “speculative”, the address of the endpoint that drafts; no request"
                f" switches drafting on in {TITLES[engine.kind]}"
            )
        speculative = engine.speculative or engine.plain
        if engine.plain == speculative and engine.kind != "transformers":
            raise ValueError(
                "engine needs two addresses, and “plain” and “speculative” are the same"
            )
        return Served(
            engine.kind,
            engine.plain,
            speculative,
            " ".join(engine.model.split()),
            engine.key_env or "",
            " ".join(engine.drafts.split()),
            engine.together,
        )


def is_missing(names: list[str]) -> str:
    """All that an entry lacks, without the full stop."""
    if len(names) == 1:
        return f"{names[0]} is missing"
    return f"{', '.join(names[:-1])} and {names[-1]} are missing"


def read_entry(entry: dict[Any, Any]) -> ServedEntry:
    """The checked entry.

    Raises:
        ValueError: what is wrong with it, without the full stop.
    """
    if "target" in entry:
        raise ValueError("a pair has “target” or “engine”, not both")
    try:
        return ServedEntry.model_validate(entry)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            fields = _Engine if first["loc"][0] == "engine" else ServedEntry
            raise ValueError(
                f"there is no setting “{where}”; allowed are {', '.join(fields.model_fields)}"
            ) from None
        if first["type"] == "missing":
            missing = [
                "“" + ".".join(map(str, e["loc"])) + "”"
                for e in error.errors()
                if e["type"] == "missing"
            ]
            raise ValueError(is_missing(missing)) from None
        if where == "engine.kind":
            raise ValueError(f"engine.kind must be one of {', '.join(KINDS)}") from None
        said = str(first["ctx"]["error"]) if "error" in first.get("ctx", {}) else first["msg"]
        raise ValueError(f"“{where}” must be {said}") from None
