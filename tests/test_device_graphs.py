"""Captured rounds on the made-up accelerator, whose graphs repeat the captured operators on the
captured buffers: right texts mean that nothing in a round is the host's.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from device_rounds import SAMPLED, device_engine, finish, lane_of, written

from specdemo.bench.made_up_gpu import UPLOADS, pretended_gpu
from specdemo.bench.made_up_graphs import MadeUpGraph
from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.engine.graphs.capture import CudaCapture
from specdemo.engine.graphs.lane import DeviceLane
from specdemo.errors import UserError
from specdemo.request import Request, Sampling

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def gpu():
    with pretended_gpu() as waits:
        yield waits


@pytest.fixture(scope="module")
def engine():
    with pretended_gpu():
        return device_engine(capture=CudaCapture(torch.device("cuda")), device="cuda")


@pytest.fixture(scope="module")
def plain():
    """The same texts on the CPU, on lanes whose host decides."""
    engine = replace(device_engine(), rounds=None)
    return {sampling: written(engine, sampling=sampling) for sampling in (Sampling(), SAMPLED)}


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", METHODS)
def test_replayed_rounds_write_the_plain_text(engine, plain, method, sampling):
    before = MadeUpGraph.replays
    lane = lane_of(engine, method, sampling=sampling)
    assert type(lane) is DeviceLane and lane.ids[0] == 3
    assert finish(lane) == plain[sampling]
    assert MadeUpGraph.replays - before >= lane.rounds


@pytest.mark.parametrize("method", ["ar", "lookup", "block", "tree"])
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("record", [True, False], ids=["recorded", "unrecorded"])
def test_a_round_waits_once_and_uploads_once(engine, gpu, method, sampling, record):
    lane = lane_of(engine, method, sampling=sampling, record=record)
    lane.advance()  # the first draft is asked for before there was a round
    rounds = 0
    while not lane.finish:
        gpu.clear()
        UPLOADS.clear()
        lane.advance()
        rounds += 1
        assert len(gpu) == 1 and "synchronize of an event engine/graphs" in gpu[0], Counter(gpu)
        assert not UPLOADS
    assert rounds > 3


@pytest.mark.parametrize("first", [True, False])
def test_best_waits_once_more_only_where_it_changes_its_mind(engine, gpu, plain, first):
    """Also where it reads the prompt only later in the text."""
    lane = lane_of(engine, "best")
    decisions = [first, False, True, True, False, False, True, True, True]
    lane.drafter._should_draft = lambda *_: decisions.pop(0) if decisions else True
    waits, drafted = [], []
    while not lane.finish:
        gpu.clear()
        lane.advance()
        waits.append(len(gpu))
        drafted.append(lane.drafter.drafted)
    assert drafted[:9] == [first, False, True, True, False, False, True, True, True]
    again = [
        now and not before for before, now in zip([False, *drafted[:-1]], drafted, strict=True)
    ]
    assert waits == [1 + one for one in again]
    assert lane.output == plain[Sampling()]


@pytest.mark.parametrize("method", ["block", "d2sd"])
def test_a_race_says_that_it_ran_as_graphs_and_is_checked_on_them(engine, method):
    request = Request("t1 t2", method, max_new_tokens=12, check="exact")
    start, *_, done = race(engine, request)
    assert (start.target_pass, start.why_host) == ("graph", "") and start.ar_width == 16
    assert done.result["identical"] and done.result["exact"]["identical"]
    assert done.result["exact"]["positions"] == 12 and done.result["exact"]["unequal"] == 0
    sampled = Sampling(0.8, seed=2)
    start, *_ = race(engine, Request("t1", "ar-draft", rule="ratio", sampling=sampled))
    assert start.target_pass == "eager" and "ratio" in start.why_host


def test_a_lanes_clock_is_all_the_time_of_its_rounds(engine):
    lane, events = lane_of(engine, "block"), []
    while not lane.finish:
        events += [e for e in lane.advance() if e.kind == "verify"]
    parts = [e.draft_seconds + e.verify_seconds + e.rest_seconds for e in events]
    assert lane.clock == pytest.approx(sum(parts)) and min(parts) > 0
    assert lane.draft_seconds > 0 and lane.verify_seconds > 0


def test_old_graphs_go_when_there_are_many():
    rounds = device_engine(capture=CudaCapture(torch.device("cuda")), device="cuda").rounds
    rounds.kept = 2
    first = rounds.lane("ar", 300)
    assert rounds.lane("ar", 512) is first and rounds.lane("spec", 300) is not first
    assert rounds.lane("ar", 600) is not first and len(rounds._lanes) == 2
    assert set(rounds._caches) == {("spec", 512), ("ar", 2048)}
    assert rounds.lane("ar", 300) is not first
    with pytest.raises(UserError, match="shorten the prompt"):
        rounds.lane("ar", 40_000)
