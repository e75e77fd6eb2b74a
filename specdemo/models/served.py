"""The part ``engine`` of an entry of ``models.yaml``: a target that an engine serves elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

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
