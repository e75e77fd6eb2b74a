"""Which token of the target stands for the mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UserError


def choose_mask_token(
    tokenizer: Any, rows: int, eos_ids: tuple[int, ...], written: np.ndarray
) -> int:
    """The id that stands for the mask: one of the target's ``rows`` of embedding that is no word
    and that it never writes, as loaders of block drafters demand.

    The last special token that the target never writes, else a row that no token has, else padding,
    unknown or start of text; and if all of them were written, as may happen at a high temperature,
    the one written least.

    Args:
        written: ``[n]`` how often each id stands in the corpus.
    Raises:
        UserError: every row is a word or ends a text.
    """
    named = set(tokenizer.get_vocab().values())
    roles = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id)
    special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))

    def priority(i: int) -> tuple[int, int, int]:
        """Least is best: written least, then by role, then the last."""
        count = int(written[i]) if i < len(written) else 0
        return count, roles.index(i) + 2 if i in roles else int(i not in special), -i

    free = [i for i in range(rows) if (i in special or i not in named) and i not in eos_ids]
    if not free:
        raise UserError(
            "This target has no special token to spare for the mask; add one to its tokenizer, or"
            " train --kind ar."
        )
    return min(free, key=priority)
