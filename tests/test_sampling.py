"""The target's choices: processors, noise and gaps of single rows."""

import pytest
import torch

from specdemo.drafters.parts.base import Draft
from specdemo.engine.sampling import Noise, Rows, processors
from specdemo.request import Sampling

torch.set_num_threads(1)


def test_rows_see_exactly_what_one_by_one_decoding_sees():
    """The library's processors on each row's own prefix, against the same processors on the
    finished text.
    """
    torch.manual_seed(1)
    sampling = Sampling(0.7, 5, 0.9, 0.01, 1.3, 4)
    draft = Draft([4, 5, 6], [-1, 0, 0])
    logits, noise = torch.randn(4, 16), Noise(4, 16)
    rows = Rows(logits, [1, 2, 4], draft, sampling, noise)
    for row, prefix in enumerate([[1, 2, 4], [1, 2, 4, 4], [1, 2, 4, 4, 5], [1, 2, 4, 4, 6]]):
        expected = processors(sampling)(torch.tensor([prefix]), logits[row : row + 1].clone())[0]
        assert torch.equal(rows.scores(row), expected)
        assert rows.pick(row) == int((expected + noise.at(len(prefix))).argmax())


def test_noise_is_keyed_by_seed_and_position_and_follows_the_law():
    """C14: the same row again and again at other positions is softmax sampling (χ² over 4 tokens,
    0.1 % level).
    """
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0])
    counts = torch.zeros(4)
    for seed in range(5):
        noise = Noise(seed, 4)
        assert torch.equal(noise.at(7), Noise(seed, 4).at(7)) and not torch.equal(
            noise.at(7), noise.at(8)
        )
        for position in range(2000):
            counts[int((logits + noise.at(position)).argmax())] += 1
    expected = logits.softmax(0) * 10_000
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.27


def test_the_gap_of_a_choice_is_that_of_the_choice_itself():
    """Noise may make the runner-up of the logits the choice, and far from a tie; the gap stays in
    units of logits.
    """
    logits = torch.zeros(1, 40, dtype=torch.float32)
    logits[0, :2] = torch.tensor([5.0, 5.0])
    noise = Noise(3, 40)
    greedy, hot = (
        Rows(logits, [1], Draft(), Sampling(), noise),
        Rows(logits, [1], Draft(), Sampling(temperature=2.0), noise),
    )
    assert greedy.top2_gap(0) == 0
    scores = sorted((logits[0] / 2 + noise.at(1)).tolist())
    assert (
        hot.top2_gap(0) == pytest.approx(2 * (scores[-1] - scores[-2]), rel=1e-4)
        and hot.top2_gap(0) > 0.01
    )
    assert hot.pick(0) == int((logits[0] / 2 + noise.at(1)).argmax())
