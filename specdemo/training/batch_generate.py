"""The target writes many rows at once: one position a step for all rows, forced tokens where the
text is given, on a static cache.

Rows need no padding: a row's given text is fed token by token until its own tokens begin, so every
row stands at the same position, and nothing leaves the device before the end. Sampling is
Gumbel-max, argmax(logits + T·g), so T = 0 is greedy in the same formula.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import StaticCache

from ..errors import UserError
from ..models.chat import render

USER, ANSWER, DONE = 0, 1, 2  # who writes a row's next token


@dataclass
class Chat:
    """The token pieces of a chat template: what precedes a user turn, what turns it over to the
    assistant, what opens the next user turn.
    """

    opening: list[int]
    to_assistant: list[int]  # begins with the token that ends a user turn
    to_user: list[int]  # begins with the token that ends an answer
    eos_ids: tuple[int, ...]


def chat_pieces(
    tokenizer: Any, eos_ids: tuple[int, ...], options: dict[str, bool] | None = None
) -> Chat:
    """Cut the tokenizer's own chat template around sentinels.

    Args:
        options: see :func:`..models.chat.chat_options`.
    Raises:
        UserError: there is no template, or its turns do not end in a token of their own.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            "This target's tokenizer has no chat template, so it cannot invent prompts; choose an"
            " instruction-tuned target."
        )
    one, two, three = "QXQX", "ZWZW", "VKVK"

    first = render(tokenizer, [("user", one)], True, options)
    both = render(tokenizer, [("user", one), ("assistant", two), ("user", three)], False, options)
    try:
        parts = first.split(one)[0], first.split(one)[1], both.split(two)[1].split(three)[0]
    except IndexError:
        raise UserError(
            "This target's chat template hides the user's words, so it cannot invent prompts; use"
            " another target."
        ) from None
    opening, to_assistant, to_user = (
        [int(i) for i in tokenizer(p, add_special_tokens=False).input_ids] for p in parts
    )
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    if (
        not to_assistant
        or not to_user
        or to_assistant[0] not in special
        or to_user[0] not in special
    ):
        raise UserError(
            "In this target's chat template a turn does not end with a token of its own, so prompts"
            " cannot be invented; use another target."
        )
    return Chat(opening, to_assistant, to_user, tuple(dict.fromkeys((*eos_ids, to_user[0]))))


class Writer:
    """The target on a static cache of ``rows`` x ``length``, reused from batch to batch."""

    def __init__(self, target: Any, rows: int, length: int, compile: bool = False):
        self.rows, self.length = rows, length
        self.body, self.head = target.get_decoder(), target.get_output_embeddings()
        self.device, self.dtype = self.head.weight.device, self.head.weight.dtype
        self.cache = StaticCache(config=target.config, max_cache_len=length)
        self.step = torch.compile(self._step, mode="reduce-overhead") if compile else self._step
        # the argument's name changed within the transformers versions supported
        self.name = (
            "cache"
            if "cache" in inspect.signature(type(self.body).forward).parameters
            else "past_key_values"
        )

    def _step(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        out = self.body(
            input_ids=ids, position_ids=position, use_cache=True, **{self.name: self.cache}
        )
        return self.head(out.last_hidden_state[:, -1]).float()

    @torch.no_grad()
    def write(
        self,
        forced: torch.Tensor,
        temperature: torch.Tensor,
        generator: torch.Generator,
        chat: Chat,
        phase: torch.Tensor | None = None,
        turns: bool = True,
        on_token: Callable[[int], None] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fill the rows to the end.

        Args:
            forced: ``[rows, length]`` int64, given tokens, -1 where the target writes. The first
                token of every row is given.
            temperature: ``[rows]`` of the answers; user turns are sampled at 1.
            generator: on the model's device. phase: ``[rows]`` who speaks first, USER (default) or
                ANSWER.
            turns: after an answer open another user turn; otherwise the row is done and repeats its
                end token.
            on_token: called with each position as it is written.
        Returns:
            ``[rows, length]`` tokens, ``[rows, length]`` bool (tokens the target wrote as an
            answer, its end-of-turn included).
        """
        forced = forced.to(self.device)
        answer = torch.zeros_like(forced, dtype=torch.bool)
        if phase is None:
            phase = torch.full((self.rows,), USER, device=self.device)
        phase = phase.to(self.device)
        temperature = temperature.to(self.device, torch.float32)
        pieces = _Pieces(chat, self.device)
        # 1) What every row is given is read in one pass.
        given = int((forced >= 0).long().cumprod(1).sum(1).min())
        if given < 1:
            raise ValueError("every row needs a first token")
        tokens = forced.clamp(min=0)
        self.cache.reset()
        logits = self._step(tokens[:, :given], torch.arange(given, device=self.device)[None])
        for at in range(given, self.length):
            if on_token:
                on_token(at)
            # 2) A token for every row: the given one, or a sampled one.
            sampled = _sample(logits, torch.where(phase == USER, 1.0, temperature), generator)
            free = forced[:, at] < 0
            token = torch.where(free, sampled, forced[:, at])
            tokens[:, at] = token
            answer[:, at] = free & (phase == ANSWER)
            # 3) Turns that end here; the template's tokens between two turns are forced.
            phase = pieces.end_turns(forced, at, token, free, phase, turns)
            # 4) Stop early where all rows are done, which is asked now and then, as it waits.
            if at % 64 == 63 and not turns and bool((phase == DONE).all()):
                tokens[:, at + 1 :] = forced[:, at + 1 :].clamp(min=0)
                break
            # 5) The next logits.
            if at + 1 < self.length:
                logits = self.step(token[:, None], torch.full((1, 1), at, device=self.device))
        return tokens.cpu(), answer.cpu()


def _sample(
    logits: torch.Tensor, temperature: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """``[rows]`` tokens by Gumbel-max from ``logits [rows, V]`` at ``temperature [rows]``."""
    uniform = torch.rand(logits.shape, device=logits.device, generator=generator)
    noise = -torch.log(-torch.log(uniform.clamp_(1e-20, 1 - 1e-7)))
    return (logits + temperature[:, None] * noise).argmax(-1)


class _Pieces:
    """A chat template's tokens on the device."""

    def __init__(self, chat: Chat, device: torch.device):
        self.ends_user = chat.to_assistant[0]
        self.ends_answer = torch.tensor(chat.eos_ids, device=device)
        self.to_assistant = torch.tensor(chat.to_assistant[1:], device=device)
        self.to_user = torch.tensor(chat.to_user[1:], device=device)

    def end_turns(
        self,
        forced: torch.Tensor,
        at: int,
        token: torch.Tensor,
        free: torch.Tensor,
        phase: torch.Tensor,
        turns: bool,
    ) -> torch.Tensor:
        """The phases ``[rows]`` after ``token [rows]`` at position ``at``. Where a turn ended, what
        follows it is written into ``forced``: the template's tokens up to the next turn, or without
        ``turns`` the end token up to the row's end.
        """
        asked = free & (phase == USER) & (token == self.ends_user)
        answered = free & (phase == ANSWER) & torch.isin(token, self.ends_answer)
        if turns:
            _force(forced, at + 1, asked, self.to_assistant)
            _force(forced, at + 1, answered, self.to_user)
        else:
            forced[:, at + 1 :] = torch.where(
                answered[:, None], token[:, None], forced[:, at + 1 :]
            )
        return torch.where(asked, ANSWER, torch.where(answered, USER if turns else DONE, phase))


def _force(forced: torch.Tensor, at: int, rows: torch.Tensor, piece: torch.Tensor) -> None:
    """Write ``piece`` into ``forced[rows, at:]`` without asking the device which rows those are."""
    room = max(min(len(piece), forced.shape[1] - at), 0)
    if room:
        forced[:, at : at + room] = torch.where(
            rows[:, None], piece[:room], forced[:, at : at + room]
        )
