"""From a user's message to token ids: the target's chat template, one way for everybody.

A user's words are text and nothing else: what they hold never becomes a control token, so no
message can end its own turn or write a turn of the system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, first_line

PLACEHOLDER = "specdemo-words"  # stands for the user's words where only the rest is looked at
Turn = tuple[str, str]  # role, content


def chat_options(thinking: bool | None) -> dict[str, bool]:
    """What a chat template is told besides the messages; ``thinking`` is None where the target has
    no thinking mode. A drafter belongs to one mode.
    """
    return {} if thinking is None else {"enable_thinking": thinking}


def check_thinking(tokenizer: Any, thinking: bool | None) -> None:
    """Raises UserError: the thinking mode is to be turned on or off, and the chat template knows no
    such switch, so that it would be ignored.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    if thinking is not None and "enable_thinking" not in template:
        what = "has a chat template without enable_thinking" if template else "has no chat template"
        raise UserError(
            f"This target {what}, so its thinking mode cannot be turned"
            f" {'on' if thinking else 'off'}; leave that choice out."
        )


def render(
    tokenizer: Any,
    turns: Sequence[Turn],
    ask: bool = True,
    options: dict[str, bool] | None = None,
) -> str:
    """The chat template's text.

    Args:
        ask: end where the next answer begins. options: see :func:`chat_options`.

    Raises:
        UserError: the template raises, or cannot be parsed.
    """
    try:
        return tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns],
            tokenize=False,
            add_generation_prompt=ask,
            **(options or {}),
        )
    except Exception as error:  # templates are programs and fail in their own ways
        raise UserError(
            f"The chat template in {_template_file(tokenizer)} fails ({first_line(error)});"
            " correct that file, or choose another pair."
        ) from None


def _template_file(tokenizer: Any) -> Path:
    folder = Path(str(getattr(tokenizer, "name_or_path", "") or "tokenizer"))
    files = (folder / "chat_template.jinja", folder / "tokenizer_config.json")
    return next((file for file in files if file.is_file()), folder)


def prompt_ids(tokenizer: Any, prompt: str, thinking: bool | None = None) -> list[int]:
    """Token ids of one user message in the target's chat form, up to where the answer begins; of
    the bare text for targets without a chat template.

    They are those of ``apply_chat_template``, except that control tokens spelled out in ``prompt``
    are read as plain text.

    Raises:
        UserError: the chat template fails, or writes the same whatever the user says.
    """
    chat = bool(getattr(tokenizer, "chat_template", None))

    def form(words: str) -> str:
        return render(tokenizer, [("user", words)], True, chat_options(thinking)) if chat else words

    def encode(text: str, plain: bool = False) -> list[int]:
        more = {"split_special_tokens": True} if plain else {}
        return list(tokenizer(text, add_special_tokens=not chat, **more)["input_ids"])

    text, frame = form(prompt), form(PLACEHOLDER)
    if text == frame and prompt != PLACEHOLDER:
        raise UserError(
            f"The chat template in {_template_file(tokenizer)} leaves the user's words out; correct"
            " that file, or choose another pair."
        )
    ids = encode(text)
    control = control_tokens(tokenizer)
    own = [i for i in encode(frame) if i in control]
    if [i for i in ids if i in control] == own:
        return ids
    ids = _encode_apart(text, frame, control, encode) if chat else encode(text, plain=True)
    if [i for i in ids if i in control] == own:
        return ids
    return _spelled_out(text, frame, control, tokenizer, encode)


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Ids that structure a text instead of being part of it, with their spelling: special tokens,
    and those added tokens that the chat template itself writes. The unknown token is none of them.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    added = getattr(tokenizer, "added_tokens_decoder", {})
    found = {
        id: token.content
        for id, token in added.items()
        if token.special or (len(token.content.strip()) > 1 and token.content in template)
    }
    ids = getattr(tokenizer, "all_special_ids", [])
    found |= dict(zip(ids, getattr(tokenizer, "all_special_tokens", []), strict=False))
    found.pop(getattr(tokenizer, "unk_token_id", None), None)
    return found


def _split(text: str, frame: str) -> tuple[str, str, str]:
    """``text`` as what the template puts before the user's words, the words as it writes them
    (trimmed, say), and what it puts behind them.
    """
    before, found, after = frame.partition(PLACEHOLDER)
    if not (found and text.startswith(before) and text.endswith(after)):
        raise UserError(
            "This target's chat template does not show a message as it is, so control tokens that"
            " the message spells out cannot be told from the template's own; leave them out."
        )
    return before, text[len(before) : len(text) - len(after)], after


def _encode_apart(text: str, frame: str, control: dict[int, str], encode: Any) -> list[int]:
    """The template's own control tokens as such, everything between them as plain text."""
    before, words, after = _split(text, frame)
    spelled = re.compile("|".join(re.escape(s) for s in sorted(control.values(), key=len)[::-1]))
    start = max((m.end() for m in spelled.finditer(before)), default=0)
    end = next((m.start() for m in spelled.finditer(after)), len(after))
    turn = before[start:] + words + after[:end]
    return encode(before[:start]) + encode(turn, plain=True) + encode(after[end:])


def _spelled_out(
    text: str, frame: str, control: dict[int, str], tokenizer: Any, encode: Any
) -> list[int]:
    """The last resort, for vocabularies in which a control token is a word like any other: the
    user's words character by character, what is a control token even so left out.
    """
    before, words, after = _split(text, frame)

    def letter(character: str) -> list[int]:
        found = tokenizer(character, add_special_tokens=False, split_special_tokens=True)
        return [i for i in found["input_ids"] if i not in control]

    inside = [id for character in words for id in letter(character)]
    return encode(before) + inside + (encode(after) if after else [])
