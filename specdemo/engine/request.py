"""What a person asks for, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..drafters import METHODS
from ..drafters.parts.base import checked
from ..errors import UserError
from .sampling import Sampling

RULES = ("match", "ratio", "point-mass")
LANES = ("both", "spec", "ar")
MAX_NEW_TOKENS = 4096


@dataclass
class Request:
    """One race.

    Args:
        prompt: the user's message; it is put into the target's chat form.
        method, params: a key of ``METHODS`` and its own parameters (checked against their limits).
        rule: ``match`` keeps the very tokens, ``ratio`` and ``point-mass`` keep the distribution.
        stop: strings that end the answer (cut from its text).
        record: whether the draft's frames and per-node probabilities are wanted; never changes what
            is written.
        lanes: ``both``, or one alone (a bench that has the other already).
        check: ``exact`` decodes once more, one token a pass at the fixed verify width and at one
            row, and compares (see ``exactness.py``).
    """

    prompt: str
    method: str = "block"
    params: Any = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 128
    rule: str = "match"
    stop: tuple[str, ...] = ()
    record: bool = True
    lanes: str = "both"
    check: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) or not self.prompt.strip():
            raise UserError("The prompt is empty; type a question or choose an example.")
        if self.method not in METHODS:
            raise UserError(
                f"There is no method “{self.method}”; choose one of {', '.join(METHODS)}."
            )
        if self.rule not in RULES:
            raise UserError(
                f"There is no acceptance rule “{self.rule}”; choose one of {', '.join(RULES)}."
            )
        if self.lanes not in LANES:
            raise UserError(f"lanes must be one of {', '.join(LANES)}, not {self.lanes!r}.")
        if (
            isinstance(self.max_new_tokens, bool)
            or not isinstance(self.max_new_tokens, int)
            or not 1 <= self.max_new_tokens <= MAX_NEW_TOKENS
        ):
            raise UserError(
                f"The number of new tokens must be a whole number from 1 to {MAX_NEW_TOKENS}, not"
                f" {self.max_new_tokens!r}."
            )
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise UserError("Stop strings must be a list of texts that are not empty.")
        if self.check not in ("", "exact") or (
            self.check and (self.rule != "match" or self.lanes == "ar")
        ):
            raise UserError(
                "The check must be “exact”, and it needs the rule “match” and a speculative lane."
            )
        method = METHODS[self.method]
        if isinstance(self.params, dict):
            self.params = checked(method.params, self.params)
        why = method.refuse(self.rule, self.params)
        if why:
            raise UserError(why)
