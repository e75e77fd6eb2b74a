"""Drafts coupled with the target's noise: every method asks for it at the right positions, and only
where tokens are sampled under *match*.
"""

from __future__ import annotations

import pytest
import torch
from scripted_net import FakeNet, V, context, make, noisy
from tiny import Script, engine_for

from specdemo.drafters import METHODS
from specdemo.drafters.parts.base import Draft
from specdemo.engine.lane import Lane
from specdemo.request import Request, Sampling

COUPLED = [name for name, m in METHODS.items() if "coupled" in m.params.model_fields]
IDS = [1, 2, 3, 4]
ALONE = {  # without what else may decide: n-grams, copies, samples
    "diffuspec": {"mix": 1, "beam": 1, "length": "fixed", "k_max": 4, "k_min": 4},
    "best": {"copies": 0, "adaptive": False},
    "specdiff": {"steps": 2},
    "d2sd": {"branches": 2},
    "specdiff2": {"drafts": 2},
}


def chosen(position):
    """What the stand-in for the noise decides at a position."""
    return (5 * position + 1) % (V - 1)


def decide(logits, positions, vocab_ids):
    assert len(logits) == len(positions)
    scores = torch.full_like(logits, -30.0)
    for row, position in enumerate(positions):
        scores[row, chosen(position)] = 0.0
    return scores


def test_every_drafting_method_is_coupled():
    assert set(METHODS) - set(COUPLED) == {"ar", "lookup"}


@pytest.mark.parametrize("name", COUPLED)
def test_a_draft_is_what_the_scores_choose_at_each_position(monkeypatch, name):
    drafter = make(
        monkeypatch,
        name,
        {"gamma": 4} | ALONE.get(name, {}) if name != "diffuspec" else ALONE[name],
        block=FakeNet(noisy),
    )
    draft = drafter.propose(context(IDS, fresh=(0, 3), couple=decide))
    children = {parent: i for i, parent in reversed(list(enumerate(draft.parent)))}
    path, node = [], children.get(-1)
    while node is not None:
        path.append(draft.tokens[node])
        node = children.get(node)
    assert path == [chosen(len(IDS) + k) for k in range(len(path))] and len(path) >= 3


@pytest.mark.parametrize(
    ("sampling", "rule", "coupled", "given"),
    [
        (Sampling(temperature=1.0), "match", True, True),
        (Sampling(temperature=1.0), "match", False, False),
        (Sampling(temperature=1.0), "ratio", True, False),
        (Sampling(), "match", True, False),
    ],
)
def test_only_sampled_drafts_under_match_are_coupled(sampling, rule, coupled, given):
    seen = []

    class Spy:
        layer_ids, weights = (), "none"
        params = METHODS["ar-draft"].parse_params({"coupled": coupled})

        def start(self, prompt_ids, capacity):
            pass

        def propose(self, context):
            seen.append(context.couple)
            return Draft()

        def observe(self, verdict):
            pass

    engine = engine_for(Script(lambda ids: torch.zeros(32)))
    request = Request("x", "ar-draft", sampling=sampling, rule=rule)
    lane = Lane(engine, request, [1, 2, 3], 6, Spy())
    with torch.inference_mode():
        lane.prefill()
        lane.advance()
    assert len(seen) == 1 and (seen[0] is not None) == given
