"""What is in memory: a pair, in a dtype where one was chosen; and pairs of one's own, by folder or
hub id, which only a browser on this machine may add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UserError, shown
from .client_address import is_local
from .controls import Limits

if TYPE_CHECKING:
    from ..models.pairs import Pair
    from .server import Server

SEPARATOR = ":"  # never in a pair's id
DTYPES = ("bf16", "fp32", "int4", "8bit", "4bit", "fp16")
THINKING = {"as its chat template says": None, "on": True, "off": False}
HOSTS = ("localhost", "127.0.0.1", "[::1]")
NOT_HERE = (
    "Targets and drafters of one's own are loaded only for a browser on this machine, at an address"
    " that no other can open; for all others they stand in models.yaml."
)


def engine_key(pair: str, dtype: str = "") -> str:
    """What an engine is known by."""
    return f"{pair}{SEPARATOR}{dtype}" if dtype else pair


def split_key(key: str) -> tuple[str, str | None]:
    """Pair and dtype of an :func:`engine_key`."""
    pair, _, dtype = key.partition(SEPARATOR)
    return pair, dtype or None


def check_dtype(dtype: Any, pair: Pair, limits: Limits) -> str:
    """The dtype that was chosen, empty for the usual one.

    Raises:
        UserError: the page does not offer it, or the pair has none of that name.
    """
    if dtype in (None, ""):
        return ""
    if not limits.every_pair:
        raise UserError("This page loads its model in one dtype only; leave the dtype out.")
    if not isinstance(dtype, str) or dtype not in pair.dtypes:
        raise UserError(
            f"{pair.title} has no dtype {shown(dtype)}; choose {', '.join(pair.dtypes)}."
        )
    return dtype


def dtype_choices(dtypes: list[str]) -> list[tuple[str, str]]:
    """As a dropdown shows them."""
    return [("this machine's usual type", ""), *((dtype, dtype) for dtype in dtypes)]


def may_add(request: Any, limits: Limits) -> bool:
    """Whether the browser is on this machine and reached the page by a local name: what comes
    through a tunnel or a proxy on this machine has its address, too.
    """
    headers = getattr(request, "headers", {})
    host = str(headers.get("host", "")).rsplit(":", 1)[0]
    direct = not headers.get("x-forwarded-for") and host in HOSTS
    return limits.own_models and is_local(request) and direct


def add_own(
    server: Server, request: Any, pair: str, target: Any, drafter: Any, thinking: Any
) -> str:
    """A pair of one's own among the server's: its key.

    Args:
        pair: the one that was chosen, whose drafter is replaced where there is no ``target``.

    Raises:
        UserError: not from here, or it cannot be run, as far as that is known without its weights.
    """
    if not may_add(request, server.limits):
        raise UserError(NOT_HERE)
    given = [str(text or "").strip() for text in (target, drafter)]
    if not any(given):
        raise UserError("Name a target or a drafter: a folder, or a hub id owner/name.")
    if thinking not in THINKING:
        raise UserError(f"Thinking is one of {', '.join(THINKING)}.")
    made = server.backend.own_pair(
        pair, given[0] or None, given[1] or None, THINKING[str(thinking)]
    )
    name = made.id if made.id.startswith("own-") else f"own-{made.id}"
    key, number = name, 1
    while key in server.pairs and server.pairs[key] != made:
        number += 1
        key = f"{name}-{number}"
    server.backend.own[key] = made
    server.pairs = {**server.pairs, key: made}
    return key
