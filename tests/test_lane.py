"""Where an answer ends, and what is kept of a round: exact tokens on a scripted target."""

from __future__ import annotations

import pytest
import torch
from tiny import Proposes, Script, engine_for, oracle, tiny_engine

from specdemo.drafters.parts.base import Draft
from specdemo.engine.lane import Lane
from specdemo.events import DraftMade, Verify
from specdemo.request import Request, Sampling

PROMPT = [3, 14, 15, 9]
TEXT = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]


def run(
    drafter=None,
    text=TEXT,
    max_new=16,
    eos=(),
    stop=(),
    sampling=None,
    pieces=None,
    target=None,
    prompt=PROMPT,
    **more,
):
    engine = engine_for(target or Script.saying(len(prompt), text), eos, pieces)
    lane = Lane(
        engine,
        Request(
            "x", "ar", sampling=sampling or Sampling(), stop=stop, max_new_tokens=max_new, **more
        ),
        prompt,
        max_new,
        drafter,
    )
    lane.prefill()
    events = []
    while not lane.finish:
        events += lane.advance()
    return lane, events


def drafters():
    right = oracle(TEXT, len(PROMPT))
    return {
        "none": lambda ids: [],
        "right": right,
        "wrong": lambda ids: [(t + 1) % 32 for t in right(ids)],
        "half": lambda ids: [t if i < 3 else (t + 1) % 32 for i, t in enumerate(right(ids))],
    }


@pytest.mark.parametrize("kind", ["none", "right", "wrong", "half"])
def test_eos_in_every_position(kind):
    """C01, C02, C09: as accepted draft, correction or bonus, and only one of several ids."""
    for position in range(12):
        make = drafters()[kind]
        drafter = Proposes(make)
        lane, events = run(drafter, eos=(31, TEXT[position]))
        assert lane.output == TEXT[: position + 1] and lane.finish == "eos"
        assert sum(len(e.kept) for e in events if isinstance(e, Verify)) == position
        # nothing is drafted after the end
        assert drafter.calls == sum(isinstance(e, DraftMade) for e in events)


@pytest.mark.parametrize("kind", ["none", "right", "wrong", "half"])
def test_every_length_limit(kind):
    """C04: exactly as many tokens as asked for, and one token needs no draft."""
    for limit in range(1, 17):
        drafter = Proposes(drafters()[kind])
        lane, _ = run(drafter, max_new=limit)
        assert lane.output == TEXT[:limit] and lane.finish == "length"
        assert limit > 1 or drafter.calls == 0


def test_eos_and_length_in_the_same_round():
    """C03: the end of text wins where both fall on one token."""
    assert run(Proposes(oracle(TEXT, 4)), max_new=8, eos=(TEXT[7],))[0].finish == "eos"
    lane, _ = run(Proposes(oracle(TEXT, 4)), max_new=7, eos=(TEXT[7],))
    assert (lane.finish, lane.output) == ("length", TEXT[:7])


def test_stop_beats_length():
    """C05."""
    lane, _ = run(Proposes(oracle(TEXT, 4)), max_new=3, stop=("m",))  # token 12 reads "m"
    assert (lane.finish, lane.stop.text, lane.output) == ("stop", "kl", [10, 11, 12])


@pytest.mark.parametrize("kind", ["none", "right", "wrong", "half"])
@pytest.mark.parametrize("stop", ["mn", "nopq", "opqrstu", "z"])
def test_stop_string_over_tokens_and_rounds(kind, stop):
    """C06, C07: found wherever a round ends; ids, text and counters are cut at the same token and
    nothing of it was ever shown.
    """
    lane, events = run(Proposes(drafters()[kind]), stop=(stop,))
    whole = "klmnopqrstuvwxyz"
    end = whole.index(stop) + len(stop)
    assert (
        lane.stop.text == whole[: whole.index(stop)]
        and lane.output == TEXT[:end]
        and lane.finish == "stop"
    )
    verdicts = [e for e in events if isinstance(e, Verify)]
    shown = "".join(k["text"] for e in verdicts for k in e.kept)
    assert stop[0] not in shown and len(lane.output) - 1 == sum(len(e.kept) for e in verdicts)
    assert verdicts[-1].cut == (
        0
        if kind in ("none", "wrong")
        else verdicts[-1].status.count("accepted")
        + verdicts[-1].status.count("dropped")
        + 1
        - len(verdicts[-1].kept)
    )
    assert all(
        v.status.count("accepted") == sum(k["node"] is not None for k in v.kept) for v in verdicts
    ), "what is called accepted was written"


def test_counters():
    """C28, C30: an oracle keeps γ + 1 a round, a liar exactly 1, and both write the same text."""
    lane, _ = run(Proposes(oracle(TEXT, 4)), max_new=16)
    assert (lane.rounds, lane.accepted) == (2, 14)  # 1 + (7 + 1) + 7 drafts, the bonus cut
    lane, _ = run(Proposes(drafters()["wrong"]), max_new=16)
    assert (lane.rounds, lane.accepted, lane.output) == (15, 0, TEXT)


def test_zero_accepted_for_ever_and_garbage():
    """C31: two hundred rounds of random garbage trees change nothing."""
    import random

    accept_rng = random.Random(1)
    text = [accept_rng.randrange(1, 30) for _ in range(400)]

    def garbage(ids):
        n = accept_rng.randrange(0, 12)
        parent = [accept_rng.randrange(-1, i) if i else -1 for i in range(n)]
        draft, seen = Draft(), set()
        for i in range(n):
            token = (
                accept_rng.randrange(32)
                if accept_rng.random() < 0.7
                else text[min(len(ids) - 4, 399)]
            )
            if (parent[i], token) in seen or parent[i] >= len(draft.tokens):
                continue
            seen.add((parent[i], token))
            draft.tokens.append(token)
            draft.parent.append(parent[i])
            draft.probs.append(None)
            draft.origin.append("garbage")
        return draft

    lane, _ = run(Proposes(garbage), text=text, max_new=400)
    assert lane.output == text and lane.rounds >= 200


def test_cache_of_exactly_the_needed_size():
    """C35: the widest pass still fits when the last token is written (a pass past the end fails in
    the scripted target).
    """
    widest = Proposes(lambda ids: [1] * 63)
    lane, _ = run(widest, max_new=16)
    assert lane.output == TEXT and lane.cache.capacity == len(PROMPT) + 16 + 64


@pytest.mark.parametrize("penalty", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("kind", ["none", "same", "mixed"])
def test_repetition_penalty_at_every_verified_position(penalty, kind):
    """C21: constant logits; with a penalty the choice depends on all that came before, drafts of
    the same block included.
    """

    def rule(prefix):
        return torch.linspace(3.0, 2.7, 32)

    make = {
        "none": lambda ids: [],
        "same": lambda ids: [0] * 7,
        "mixed": lambda ids: [len(ids) - 4, len(ids) - 3, 0, 0],
    }[kind]
    reference = run(None, target=Script(rule), sampling=Sampling(repetition_penalty=penalty))[
        0
    ].output
    lane, _ = run(
        Proposes(make), target=Script(rule), sampling=Sampling(repetition_penalty=penalty)
    )
    assert lane.output == reference
    prompt = set(PROMPT)
    expected = [0] * 16 if penalty == 1 else [t for t in range(32) if t not in prompt][:16]
    assert reference == expected


def test_features_are_those_of_the_committed_tokens():
    """A drafter gets each token's features once, in order, anchor excluded, however many rounds it
    slept.
    """
    engine = tiny_engine()
    seen = []

    class Taps(Proposes):
        def propose(self, context):
            if self.calls % 2:  # sleeps every other round
                self.calls += 1
                return Draft()
            features, start = context.take_features()
            seen.append((start, features.clone(), list(context.ids)))
            return super().propose(context)

    truth = Lane(engine, Request("x", "ar"), PROMPT, 30)
    truth.prefill()
    while not truth.finish:
        truth.advance()
    lane = Lane(
        engine, Request("x", "ar"), PROMPT, 30, Taps(oracle(truth.output, 4, 5), layer_ids=(0, 1))
    )
    lane.prefill()
    while not lane.finish:
        lane.advance()
    assert lane.output == truth.output
    cache = engine.target.new_cache(64)
    whole = engine.target.prefill(cache, lane.ids, (0, 1))[1]
    position = 0
    for start, features, ids in seen:
        assert start == position and start + len(features) == len(ids) - 1
        assert torch.allclose(features, whole[start : start + len(features)], atol=1e-3)
        position += len(features)


def test_plain_step_uses_the_narrowest_trusted_width():
    target = Script.saying(4, TEXT)
    engine = engine_for(target, widths=(4, 8, 16))
    lane = Lane(engine, Request("x", "ar"), PROMPT, 6)
    lane.prefill()
    while not lane.finish:
        lane.advance()
    assert target.calls == [4] * 5 and lane.output == TEXT[:6]


@pytest.mark.parametrize("record", [True, False])
def test_the_targets_likeliest_tokens_are_recorded_where_tokens_are_kept(record):
    lane, events = run(Proposes(drafters()["half"]), record=record)
    rounds = [e for e in events if isinstance(e, Verify)]
    assert rounds
    for event in rounds:
        if not record:
            assert event.top is None and "top" not in event.to_dict()
            continue
        assert event.top is not None and len(event.top) == len(event.kept)
        for best, kept in zip(event.top, event.kept, strict=True):
            chances = [p for _, p in best]
            assert len(best) == 5 and chances == sorted(chances, reverse=True)
            assert best[0] == (kept["id"], pytest.approx(kept["p"])), "greedy: the likeliest"
            assert all(str(token) in event.vocab for token, _ in best)
