"""The target as a writer of many rows at once."""

import pytest
import torch

from specdemo.training.batch_generate import ANSWER, Chat, Writer
from specdemo.training.eval_text import group_by_length

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_writer_is_greedy_decoding_with_given_tokens(tiny_target):
    forced = torch.full((2, 24), -1)
    forced[0, :5], forced[1, :9] = (
        torch.tensor([3, 1, 4, 1, 5]),
        torch.tensor([2, 7, 1, 8, 2, 8, 1, 8, 2]),
    )
    chat = Chat([], [-2], [-2], (127,))
    tokens, answer = Writer(tiny_target, 2, 24).write(
        forced,
        torch.zeros(2),
        torch.Generator().manual_seed(0),
        chat,
        torch.full((2,), ANSWER),
        turns=False,
    )
    for row, given in ((0, 5), (1, 9)):
        text = forced[row, :given].tolist()
        while len(text) < 24 and text[-1] != 127:
            text.append(int(tiny_target(torch.tensor([text])).logits[0, -1].argmax()))
        assert tokens[row, : len(text)].tolist() == text and answer[
            row
        ].nonzero().flatten().tolist() == list(range(given, len(text)))


def test_turns_follow_each_other_with_the_templates_own_tokens(tiny_target):
    """User and answer end with token 9; [9, 50, 51] hands over to the assistant, [9, 60] to the
    user.
    """
    chat = Chat([40], [9, 50, 51], [9, 60], (9,))
    forced = torch.full((8, 64), -1)
    forced[:, 0] = 40
    forced[:, 5], forced[:, 20] = 9, 9  # not free: a given 9 must not end a turn
    spoken = torch.full((8,), ANSWER)
    writer = Writer(tiny_target, 8, 64)
    biased = writer._step
    writer.step = lambda ids, at: (
        biased(ids, at)
        + torch.nn.functional.one_hot(torch.tensor(9), 128) * 12.0 * (int(at) % 11 == 10)
    )
    tokens, answer = writer.write(
        forced, torch.ones(8), torch.Generator().manual_seed(0), chat, spoken
    )
    turned = 0
    for row, mask in zip(tokens.tolist(), answer.tolist(), strict=True):
        for i in range(1, 60):
            if mask[i] and row[i] == 9:
                assert row[i + 1] == 60 or forced[0, i + 1] >= 0
                assert not mask[i + 1]
                turned += 1
    assert turned > 3


def test_prompts_written_together_are_of_like_length():
    groups = group_by_length([10, 300, 12, 40, 310, 11, 500], most=3, spread=48)
    assert groups == [[0, 5, 2], [3], [1, 4], [6]]
