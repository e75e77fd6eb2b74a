"""Reading the prompt: in chunks, once for both lanes, with a Stop between two."""

from __future__ import annotations

import dataclasses
import random
import threading

import pytest
import torch
from tiny import VOCAB, Proposes, engine_for, tiny_engine
from tiny_models import features_of, make_tiny_drafter, make_tiny_target

from specdemo.drafters import METHODS
from specdemo.engine import race
from specdemo.engine.lane import Lane
from specdemo.engine.target import LONG, Target, chunks
from specdemo.events import Done, Prefill, PrefillProgress, Start
from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.decoder import CHUNK_ROWS, ROW_STEP
from specdemo.request import Request
from specdemo.traces import dump_trace, find_inconsistency, parse_trace

pytestmark = pytest.mark.usefixtures("one_thread")


def text(n: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(n)]


def counting(target: Target, monkeypatch) -> list[int]:
    """The rows of every pass of this target from now on."""
    rows, forward = [], target._forward

    def count(cache, ids, *args, **more):
        rows.append(len(ids))
        return forward(cache, ids, *args, **more)

    monkeypatch.setattr(target, "_forward", count)
    return rows


def test_chunks_are_a_text_in_order_and_shorter_far_behind_its_beginning():
    ids = text(LONG + 300)
    assert [len(part) for part in chunks(ids)] == [CHUNK_ROWS] * (LONG // CHUNK_ROWS) + [
        CHUNK_ROWS // 2
    ] * 2 + [300 - CHUNK_ROWS]
    assert sum(chunks(ids), []) == ids and not list(chunks([]))
    assert [len(part) for part in chunks(ids[:300], LONG)] == [128, 128, 44]


@pytest.mark.parametrize("n", [1, 31, 32, 255, 256, 257, 600])
def test_a_text_in_chunks_is_read_as_by_the_library(n):
    model = make_tiny_target(max_position_embeddings=1024)
    target, ids = Target(model), text(n)
    want, logits = features_of(model, (0, 1), ids)
    with torch.inference_mode():
        cache = target.new_cache(n)
        last, features = target.prefill(cache, ids, (0, 1))
    assert cache.length == n
    assert torch.allclose(last[0], logits[-1], atol=1e-4)
    final = torch.nn.functional.rms_norm(features[:, 64:], (64,), target.final_norm, 1e-6)
    assert torch.allclose(features[:, :64], want[:, :64], atol=1e-4)
    assert torch.allclose(final, want[:, 64:], atol=1e-4)  # the library norms its last state


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_text_has_the_same_bits_in_any_cache(dtype):
    """Whatever its capacity holds, also the remains of another text."""
    target, ids = Target(make_tiny_target().to(dtype)), text(300)
    with torch.inference_mode():
        caches = [target.new_cache(300), target.new_cache(3000), target.new_cache(3000)]
        target.prefill(caches[2], text(500, seed=1))
        caches[2].rollback(0)
        logits = [target.prefill(cache, ids)[0] for cache in caches]
    for other, cache in zip(logits, caches, strict=True):
        assert torch.equal(other, logits[0])
        assert torch.equal(cache.keys[:, :, :300], caches[0].keys[:, :, :300])
        assert torch.equal(cache.values[:, :, :300], caches[0].values[:, :, :300])


def test_texts_of_all_lengths_are_read_in_few_row_counts(monkeypatch):
    """Or kernels for ever more row counts would stay in memory."""
    target = Target(make_tiny_target())
    rows = counting(target, monkeypatch)
    with torch.inference_mode():
        for n in range(1, 2 * CHUNK_ROWS, 7):
            target.prefill(target.new_cache(n), text(n))
    assert set(rows) == set(range(ROW_STEP, CHUNK_ROWS + 1, ROW_STEP))


def test_a_cache_is_filled_to_its_last_slot():
    target, ids = Target(make_tiny_target()), text(256)
    with torch.inference_mode():
        whole, parts = target.new_cache(256), target.new_cache(256)
        expected, _ = target.prefill(whole, ids)
        for part in (ids[:250], ids[250:]):
            logits, _ = target.prefill(parts, part)
    assert parts.length == parts.capacity == 256
    assert torch.allclose(logits, expected, atol=1e-4)


class Taps(Proposes):
    """Proposes nothing and keeps the features of the prompt."""

    def __init__(self):
        super().__init__(lambda ids: [], layer_ids=(1, 0))
        self.taken, self.params = [], METHODS["lookup"].parse_params({})

    def propose(self, context):
        self.taken.append(context.take_features())
        return super().propose(context)


PROMPT_TEXT = "".join("abcdefgh"[i * i % 7] for i in range(600))


def test_a_race_reads_its_prompt_once_for_both_lanes(monkeypatch):
    """Both have the cache, the first token and the time of that one reading; the drafter has the
    features it would have read alone.
    """
    engine = engine_for(Target(make_tiny_target(max_position_embeddings=1024)), widths=(1, 2, 8))
    rows = counting(engine.target, monkeypatch)
    drafter, lanes = Taps(), []
    prefill = Lane.prefill
    monkeypatch.setattr(
        Lane, "prefill", lambda lane, *a: (lanes.append(lane), prefill(lane, *a))[1]
    )
    method = dataclasses.replace(METHODS["lookup"], build=lambda *_: drafter)
    monkeypatch.setitem(METHODS, "lookup", method)
    request = Request(PROMPT_TEXT, "lookup", max_new_tokens=3)
    events = list(race(engine, request))
    read = [e for e in events if isinstance(e, PrefillProgress)]
    assert [(e.read, e.total) for e in read] == [(256, 600), (512, 600)]
    assert rows[:3] == [256, 256, 96] and max(rows[3:]) < 32
    first, second = lanes
    assert {first.name, second.name} == {"ar", "spec"}
    assert torch.equal(first.cache.keys[:, :, :600], second.cache.keys[:, :, :600])
    assert torch.equal(first.cache.values[:, :, :600], second.cache.values[:, :, :600])
    assert first.output == second.output
    alone = Lane(engine, request, engine.encode(PROMPT_TEXT), 3, Taps())
    alone.prefill()
    assert torch.equal(alone.cache.keys[:, :, :600], first.cache.keys[:, :, :600])
    features, start = drafter.taken[0]
    assert start == 0 and torch.equal(features, torch.cat(alone.features))
    done = events[-1].result
    shown = {e.lane: e.seconds for e in events if isinstance(e, Prefill)}
    assert shown == {lane: done[lane]["ttft_seconds"] for lane in ("ar", "spec")}
    assert parse_trace(dump_trace(events))


def test_both_times_to_first_token_hold_the_one_reading(monkeypatch):
    """By a clock that goes on by one second a chunk."""
    engine, now = tiny_engine(), [0.0]
    prefill = engine.target.prefill

    def slow(*args):
        now[0] += 1.0
        return prefill(*args)

    monkeypatch.setattr(engine.target, "prefill", slow)
    monkeypatch.setattr("specdemo.engine.prompt.clock_now", lambda device: now[0])
    monkeypatch.setattr(type(engine), "now", lambda self: now[0])
    events = race(engine, Request(PROMPT_TEXT[:400], "lookup", max_new_tokens=1))
    assert [e.seconds for e in events if isinstance(e, Prefill)] == [2.0, 2.0]


@pytest.mark.parametrize("read", [0, 1, 2])
def test_stop_is_looked_at_between_two_chunks(monkeypatch, read):
    engine = engine_for(Target(make_tiny_target(max_position_embeddings=1024)), widths=(1, 2, 8))
    rows = counting(engine.target, monkeypatch)
    cancel, events = threading.Event(), []
    for event in race(engine, Request(PROMPT_TEXT, "lookup"), cancel):
        events.append(event)
        if len(events) == read + 1:
            cancel.set()
    assert [type(e) for e in events] == [Start, *[PrefillProgress] * read, Done]
    assert rows == [256] * read and events[-1].stopped
    assert parse_trace(dump_trace(events))


def test_a_race_left_between_two_chunks_leaves_the_engine_ready():
    engine = engine_for(Target(make_tiny_target(max_position_embeddings=1024)), widths=(1, 2, 8))
    events = race(engine, Request(PROMPT_TEXT, "lookup"))
    assert isinstance([next(events), next(events)][1], PrefillProgress)
    events.close()
    assert isinstance(list(race(engine, Request("abc", "lookup", max_new_tokens=2)))[-1], Done)


def test_nothing_is_read_after_a_first_token():
    events = [Start(), PrefillProgress(1, 2), Prefill("ar"), Prefill("spec")]
    assert find_inconsistency(events) is None
    assert find_inconsistency([*events, PrefillProgress(2, 2)]) == "prefill out of order"


# -- drafters --------------------------------------------------------------------------------------


def test_a_block_drafter_takes_a_long_context_in_few_row_counts(monkeypatch):
    """And knows the same of it as from one token after the other."""
    net = make_tiny_drafter(make_tiny_target())
    counts, context_rows = set(), net.context_rows

    def count(features, cos, sin):
        counts.add(len(features))
        return context_rows(features, cos, sin)

    monkeypatch.setattr(net, "context_rows", count)
    torch.manual_seed(0)
    features = torch.randn(600, 2 * 64)
    singly = net.new_cache(600)
    for at in range(600):
        net.extend(singly, features[at : at + 1], at)
    counts.clear()
    for n in (600, 511, 300, 257, 33):
        cache = net.new_cache(600)
        net.extend(cache, features[:n], 0)
        assert cache.length == n
        assert torch.allclose(cache.keys[:, :, :n], singly.keys[:, :, :n], atol=1e-4)
        assert torch.allclose(cache.values[:, :, :n], singly.values[:, :, :n], atol=1e-4)
    assert counts == {256, 96, 64, 1}  # 1 of 257


def test_an_autoregressive_drafter_reads_a_long_text_in_chunks():
    target = make_tiny_target()
    shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=VOCAB)
    torch.manual_seed(0)
    net = ArDrafter(ArDrafterConfig(num_attention_heads=4, num_key_value_heads=2, **shape)).eval()
    net.bind(target.get_input_embeddings().weight, target.get_output_embeddings().weight)
    ids = torch.tensor(text(600))
    with torch.no_grad():
        want = net.logits(net(net.embedding[ids[None]])[0])
    for n in (600, 257, 40):
        cache = net.new_cache(600)
        last = net.step(ids[:n], 0, cache, last_only=True)
        assert cache.length == n and last.shape == (1, VOCAB)
        assert torch.allclose(last[0], want[n - 1], atol=1e-4)
    assert torch.allclose(net.step(ids, 0, net.new_cache(600)), want, atol=1e-4)
