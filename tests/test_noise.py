"""Noise is a function of (seed, position, token), and follows the Gumbel law."""

import pytest
import torch

from specdemo.bench.made_up_gpu import pretended_gpu
from specdemo.engine.noise import GOLDEN, Noise, _mixed, gumbel, signed, steps_of

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(seed, positions, vocab):
    return gumbel(torch.tensor([seed]), torch.as_tensor(positions), steps_of(vocab))


def test_the_bits_are_those_of_splitmix64():
    """Its published first numbers from seed 0."""
    numbers = _mixed(torch.tensor([1, 2, 3]) * GOLDEN)
    assert [n % 2**64 for n in numbers.tolist()] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_a_row_is_the_same_alone_in_a_batch_and_on_another_device():
    batch = rows(5, [900, 7, 8, 7], 50)
    assert torch.equal(batch[1], Noise(5, 50).at(7)) and torch.equal(batch[1], batch[3])
    assert torch.equal(batch[2, :20], Noise(5, 20).at(8))  # whatever the vocabulary
    with pretended_gpu() as waits:
        there = Noise(5, 50, "cuda").at(7)
        assert not waits and torch.equal(there.host, batch[1])


def test_seeds_of_any_size_are_taken():
    for seed in (0, 2**31 - 1, 2**63, 2**64 - 1, -3, 2**70 + 1):
        assert -(2**63) <= signed(seed) < 2**63 and (signed(seed) - seed) % 2**64 == 0
        assert Noise(seed, 8).at(0).isfinite().all()


def test_every_dimension_follows_the_law():
    """Largest distance of the empirical distribution from exp(-exp(-x)) over tokens, over positions
    and over seeds (Kolmogorov's 0.1 % level: 1.95 / √n).
    """
    n = 100_000
    over_seeds = torch.cat([rows(seed, [3], 1)[0] for seed in range(4000)])
    for sample in (
        rows(1, [4], n)[0],
        rows(1, torch.arange(n), 1)[:, 0],
        rows(9, torch.arange(300), 300).flatten(),
        over_seeds,
    ):
        law = (-(-sample.double().sort().values).exp()).exp()
        steps = torch.arange(1, len(sample) + 1) / len(sample)
        gap = torch.maximum((law - steps).abs(), (law - steps + 1 / len(sample)).abs()).max()
        assert gap < 1.95 / len(sample) ** 0.5


def test_neighbours_do_not_depend_on_each_other():
    """χ² of pairs of choices over 4 x 4 cells (0.1 % level, 9 degrees of freedom): neighbouring
    positions, seeds and tokens.
    """
    many = torch.arange(20_000)
    positions = rows(0, many, 8)
    seeds = rows(1, many, 8)
    for a, b in (
        (positions[:-1, :4], positions[1:, :4]),
        (positions[:, :4], seeds[:, :4]),
        (positions[:, :4], positions[:, 4:]),
    ):
        cells = torch.bincount(4 * a.argmax(1) + b.argmax(1), minlength=16).double().view(4, 4)
        expected = cells.sum(1, keepdim=True) * cells.sum(0) / cells.sum()
        assert float(((cells - expected) ** 2 / expected).sum()) < 27.88
