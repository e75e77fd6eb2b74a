"""From a user's message to token ids: the target's chat template, one way for everybody."""

from __future__ import annotations

from typing import Any


def chat_options(thinking: bool | None) -> dict[str, bool]:
    """What a chat template is told besides the messages; ``thinking`` is None where the target has
    no thinking mode. A drafter belongs to one mode.
    """
    return {} if thinking is None else {"enable_thinking": thinking}


def prompt_ids(tokenizer: Any, prompt: str, thinking: bool | None = None) -> list[int]:
    """Token ids of one user message in the target's chat form, up to where the answer begins; of
    the bare text for targets without a chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        return tokenizer(prompt)["input_ids"]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        tokenize=False,
        add_generation_prompt=True,
        **chat_options(thinking),
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]
