"""The target's choices: processors, noise and gaps of single rows."""

import pytest
import torch

from specdemo.drafters.parts.base import Draft
from specdemo.engine.noise import Noise
from specdemo.engine.sampling import Coupling, Rows, processors
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


@pytest.mark.parametrize("temperature", [0.0, 1e-39, 1e-46, 5e-324, 9e-6])
def test_temperatures_near_zero_are_greedy(temperature):
    logits = torch.tensor([[1.0, 3.0, 2.9999]])
    rows = Rows(logits, [1], Draft(), Sampling(temperature, seed=5), Noise(5, 3))
    assert rows.sampling.greedy and rows.pick(0) == 1
    assert rows.probs(0).tolist() == [0, 1, 0] and rows.top2_gap(0) == pytest.approx(1e-4, rel=0.01)


def test_the_lowest_temperature_that_samples_has_finite_numbers():
    sampling = Sampling(1e-5, top_k=50, top_p=0.9, min_p=0.1)
    rows = Rows(
        torch.linspace(-300, 300, 64)[None].bfloat16(), [1], Draft(), sampling, Noise(0, 64)
    )
    assert not sampling.greedy and rows.pick(0) == 63 and float(rows.probs(0).sum()) == 1


@pytest.mark.parametrize(
    "filters", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}, {"top_k": 1, "top_p": 0.5}]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_filter_that_leaves_one_token_leaves_the_greedy_one(filters, dtype):
    """Also where several tokens tie, as they often do in bf16: the lowest id is the likeliest."""
    rng = torch.Generator().manual_seed(1)
    for case in range(60):
        logits = torch.randint(-4, 5, (1, 500), generator=rng).to(dtype)
        noise = Noise(case, 500)
        greedy = Rows(logits, [1], Draft(), Sampling(), noise).pick(0)
        assert greedy == int((logits[0] == logits.max()).nonzero()[0])
        one = Rows(logits, [1], Draft(), Sampling(1.0, seed=case, **filters), noise)
        assert one.pick(0) == greedy and float(one.probs(0)[greedy]) == 1
        assert one.top2_gap(0) == float("inf")


def test_filters_keep_as_many_as_they_say_and_the_lowest_ids_of_a_tie():
    logits = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0, 0.0]])

    def kept(**filters):
        rows = Rows(logits, [1], Draft(), Sampling(1.0, **filters), Noise(0, 6))
        return rows.probs(0).nonzero()[:, 0].tolist()

    assert [kept(top_k=k) for k in (1, 2, 3, 4, 5, 9)] == [
        [1],
        [1, 3],
        [0, 1, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5],
    ]
    both = float(2 * logits[0].softmax(0)[1])
    assert kept(top_p=both + 0.01) == [0, 1, 3] and kept(top_p=both / 2 - 0.01) == [1]
    assert kept(min_p=0.9) == [1, 3] and kept(min_p=1.0) == [1]
    assert kept(min_p=0.3) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("filters", [{"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.05}])
def test_filters_without_ties_are_those_of_transformers(filters):
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    theirs = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
    for seed in range(40):
        torch.manual_seed(seed)
        scores, ids = torch.randn(1, 300) * 3, torch.tensor([[1]])
        ((name, value),) = filters.items()
        assert torch.equal(
            processors(Sampling(1.0, **filters))(ids, scores), theirs[name](value)(ids, scores)
        )


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_a_coupled_drafter_that_agrees_drafts_what_the_target_chooses(temperature):
    """With the target's own logits every coupled choice is the target's, in any vocabulary order;
    without the noise hardly half of them are.
    """
    torch.manual_seed(0)
    logits, prefix = 2 * torch.randn(200, 50), [1, 2, 3]
    noise = Noise(7, 50)
    coupled = Coupling(temperature, noise)
    order = torch.randperm(50)
    same = greedy = 0
    for row in logits:
        rows = Rows(row[None], prefix, Draft(), Sampling(temperature=temperature, seed=7), noise)
        scores = coupled(row[None, order], [len(prefix)], order)
        same += int(order[scores[0].argmax()]) == rows.pick(0)
        greedy += int(row.argmax()) == rows.pick(0)
        prefix = [*prefix, 0]
    assert same == 200 > greedy


def test_coupled_scores_are_the_drafters_own_where_the_noise_is_weak():
    logits = torch.randn(3, 50)
    scores = Coupling(1e-4, Noise(1, 50))(logits, [5, 6, 7], None)
    assert torch.allclose(scores, logits, atol=1e-2)
    wide = torch.randn(1, 1000)
    scores = Coupling(1.0, Noise(1, 1000))(wide, [5], None)
    assert scores.isfinite().sum() == Coupling.CANDIDATES
    assert scores.softmax(-1).isfinite().all()


def test_noise_of_some_tokens_is_the_noise_of_all():
    noise = Noise(3, 100)
    tokens = torch.tensor([[5, 99, 0], [7, 7, 42]])
    some = noise.of([10, 1_000], tokens)
    assert torch.equal(some[0], noise.at(10)[tokens[0]])
    assert torch.equal(some[1], noise.at(1_000)[tokens[1]])
