"""The engine on a tiny random Llama: trees, caches, sampling and the race, against plain decoding
and brute force.
"""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest
import torch
from tiny import VOCAB, Proposes, Script, engine_for, oracle, tiny_engine
from tiny_models import make_tiny_target
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specdemo.drafters.parts.base import Draft
from specdemo.engine import race
from specdemo.engine.calibrate import calibrate, equal_widths
from specdemo.engine.cost import WIDTHS, CostModel
from specdemo.engine.exactness import check_exact
from specdemo.engine.lane import Lane
from specdemo.engine.target import Target, bucket
from specdemo.errors import UserError
from specdemo.events import ArToken, Done, Prefill, Start, Verify
from specdemo.request import Request, Sampling
from specdemo.traces import dump_trace, parse_trace

torch.set_num_threads(1)
PROMPT = [3, 14, 15, 92, 65]


def write(engine, drafter=None, max_new=48, sampling=None, **more):
    lane = Lane(
        engine,
        Request("x", "ar", sampling=sampling or Sampling(), **more),
        PROMPT,
        max_new,
        drafter,
    )
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            lane.advance()
    return lane


def noisy_tree(truth, rng):
    """The truth's next tokens as one branch among random others, nodes in random order of depth."""

    def make(ids):
        right = truth[len(ids) - len(PROMPT) :][:5]
        draft = Draft()
        spots = [-1]
        for depth, token in enumerate(right):
            wrong = (token + 1 + rng.randrange(VOCAB - 2)) % VOCAB
            for candidate in [wrong, token] if rng.random() < 0.5 else [token, wrong]:
                if candidate == token and rng.random() < 0.2:
                    continue
                draft.tokens.append(candidate)
                draft.parent.append(spots[-1])
            own = [
                i
                for i, (t, p) in enumerate(zip(draft.tokens, draft.parent, strict=True))
                if t == token and p == spots[-1]
            ]
            if not own or depth == len(right) - 1:
                break
            spots.append(own[0])
        n = len(draft.tokens)
        draft.probs, draft.origin = [None] * n, ["x"] * n
        return draft

    return make


@pytest.mark.parametrize(
    "model",
    [
        make_tiny_target(),
        Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        ),
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
            )
        ),
        MistralForCausalLM(
            MistralConfig(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                sliding_window=None,
            )
        ),
    ],
    ids=lambda m: m.config.model_type,
)
def test_step_equals_the_library(model):
    """Prefill and single steps give Hugging Face's own logits, for every family that is
    supported.
    """
    for module in model.modules():  # biases and head norms must matter
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            torch.nn.init.normal_(module.bias)
    model.eval()
    target = Target(model)
    assert target.check_against(model) < 1e-4
    ids = [5, 9, 77, 3, 3, 101, 64]
    with torch.no_grad():
        whole = model(input_ids=torch.tensor([ids])).logits[0]
        cache = target.new_cache(32)
        logits, _ = target.prefill(cache, ids[:3])
        rows = [logits[0]]
        for token in ids[3:]:
            rows.append(target.verify(cache, token, [], [], 4)[0][0])
            cache.commit([])
    assert torch.allclose(torch.stack(rows), whole[2:], atol=1e-4)


def test_a_model_of_another_family_is_refused_in_words():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="“gpt2” are not supported yet.*choose a Llama"):
        Target(model)


def test_a_model_that_computes_something_else_is_refused():
    with pytest.raises(UserError, match="does not compute what a Llama-type model does"):
        Target(make_tiny_target()).check_against(make_tiny_target(seed=1))


def test_tree_rows_equal_their_own_paths():
    """Every node's logits are those of reading its path alone: ancestors only, positions by depth,
    padding unseen.
    """
    target = Target(make_tiny_target())
    parent = [-1, -1, 0, 0, 1, 2, 5, 4]
    tokens = [7, 8, 9, 10, 11, 12, 13, 14]
    with torch.inference_mode():
        cache = target.new_cache(64)
        target.prefill(cache, PROMPT)
        logits, _ = target.verify(cache, 33, tokens, parent, 16)
        for node in range(-1, len(tokens)):
            path, above = [], node
            while above >= 0:
                path.insert(0, tokens[above])
                above = parent[above]
            alone = target.new_cache(64)
            expected, _ = target.prefill(alone, [*PROMPT, 33, *path])
            assert torch.allclose(logits[node + 1], expected[0], atol=1e-4)


@pytest.mark.parametrize("fallback", [False, True])
def test_cascade_attention_equals_plain_attention(fallback, monkeypatch):
    """D²SD's merge by log-sum-exp, by the library's kernel and by our own arithmetic, on a tree,
    also with nothing committed before it.
    """
    if fallback:
        monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    target = Target(make_tiny_target())
    parent, tokens = [-1, -1, 0, 0, 1, 2, 5, 4], [7, 8, 9, 10, 11, 12, 13, 14]
    with torch.inference_mode():
        for prompt in ([], PROMPT):
            cache = target.new_cache(64)
            if prompt:
                target.prefill(cache, prompt)
            plain = target.verify(cache, 33, tokens, parent, 16)[0]
            assert torch.allclose(
                target.verify(cache, 33, tokens, parent, 16, attention="cascade")[0],
                plain,
                atol=1e-4,
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_tree_rows_have_the_very_bits_of_their_paths(dtype):
    """On both sides of a cut: a node's logits equal, bit for bit, those of reading its path as a
    chain, wherever its ancestors lie.
    """
    target = Target(make_tiny_target(max_position_embeddings=1024).to(dtype))
    rng = random.Random(2)
    for length in (5, 31, 66, 186, 190, 192, 200, 222, 600):
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        parent = [-1] + [rng.randrange(-1, i) for i in range(1, 14)]
        tokens = [rng.randrange(VOCAB) for _ in parent]
        with torch.inference_mode():
            cache = target.new_cache(700)
            target.prefill(cache, prompt)
            tree = target.verify(cache, 33, tokens, parent, 16)[0]
            for node in range(len(tokens)):
                path, above = [], node
                while above >= 0:
                    path.insert(0, tokens[above])
                    above = parent[above]
                chain = target.verify(cache, 33, path, list(range(-1, len(path) - 1)), 16)[0]
                assert torch.equal(tree[node + 1], chain[-1]), (length, node)


def test_commit_moves_the_accepted_path_together():
    """C31: after keeping a scattered path the cache continues as if it had been read in order."""
    target = Target(make_tiny_target())
    with torch.inference_mode():
        cache = target.new_cache(64)
        target.prefill(cache, PROMPT)
        target.verify(cache, 33, [7, 8, 9, 10, 11, 12], [-1, -1, 1, 1, 3, 4], 8)
        cache.commit([1, 3, 4])
        assert cache.length == len(PROMPT) + 4
        after, _ = target.verify(cache, 50, [], [], 2)
        alone = target.new_cache(64)
        expected, _ = target.prefill(alone, [*PROMPT, 33, 8, 10, 11, 50])
    assert torch.allclose(after[0], expected[0], atol=1e-4)
    cache.rollback(3)
    assert cache.length == 3
    with pytest.raises(ValueError):
        cache.rollback(4)  # C32: only backwards


def test_a_draft_deeper_than_the_exact_part_is_no_pass():
    target = Target(make_tiny_target())
    with torch.inference_mode():
        cache = target.new_cache(128)
        target.prefill(cache, PROMPT)
        with pytest.raises(ValueError, match="depth 33"):
            target.verify(cache, 33, [7] * 33, list(range(-1, 32)), 48)
        target.verify(cache, 33, [7] * 32, list(range(-1, 31)), 48)


def test_bucket():
    assert [bucket(n) for n in (1, 256, 257, 1025)] == [256, 256, 512, 2048]
    with pytest.raises(UserError, match="cache slots"):
        bucket(10**6)


def test_speculative_text_is_the_plain_text():
    """Chains and trees, right, wrong and random, greedy."""
    engine = tiny_engine()
    truth = write(engine).output
    rng = random.Random(0)

    def mixed(ids):
        return [t if rng.random() < 0.7 else rng.randrange(VOCAB) for t in oracle(truth, 5)(ids)]

    for make in (
        oracle(truth, 5),
        lambda ids: [(t + 1) % VOCAB for t in oracle(truth, 5)(ids)],
        mixed,
        noisy_tree(truth, rng),
    ):
        assert write(engine, Proposes(make)).output == truth


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(t, k, p, m, r, 0)
        for t, k, p, m, r in [
            (0.3, 0, 1, 0, 1),
            (1, 0, 0.9, 0, 1),
            (1.5, 20, 1, 0.02, 1),
            (0.8, 0, 1, 0, 1.3),
            (0, 0, 1, 0, 1.2),
        ]
    ],
)
def test_sampled_text_is_the_plain_text(sampling):
    """C15, C17, C21: at any temperature and with every filter, whatever was drafted and however
    wide the pass.
    """
    engine, rng = tiny_engine(), random.Random(3)
    for seed in range(4):
        sampling = Sampling(**(sampling.to_dict() | {"seed": seed}))
        truth = write(engine, sampling=sampling, max_new=24).output
        for make in (oracle(truth, 5), noisy_tree(truth, rng), lambda ids: [0] * 7):
            assert write(engine, Proposes(make), sampling=sampling, max_new=24).output == truth


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": float("nan")},
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"seed": -1},
        {"top_k": 2.5},
        {"repetition_penalty": 0},
        {"temperature": "hot"},
    ],
)
def test_hostile_sampling(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        Sampling(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": "  "},
        {"method": "magic"},
        {"rule": "lossy"},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"max_new_tokens": 10**9},
        {"stop": ("",)},
        {"stop": "END"},
        {"lanes": "none"},
        {"check": "vague"},
        {"rule": "ratio"},
    ],
)
def test_hostile_request(bad):
    """C04, C19, C22: refused with one sentence before anything runs."""
    with pytest.raises(UserError) as refusal:
        Request(**({"prompt": "hello", "method": "lookup"} | bad))
    assert len(str(refusal.value)) > 20 and "\n" not in str(refusal.value)


def test_exact_check_and_its_teeth():
    """Bit for bit against the fixed width; a lane whose cache was tampered with fails."""
    engine = tiny_engine()
    truth = write(engine, max_new=24).output
    request = Request("x", "ar", max_new_tokens=24, check="exact")
    lane = Lane(engine, request, PROMPT, 24, Proposes(oracle(truth, 5, 4)))
    engine.costs = replace(engine.costs, widths=equal_widths(engine.target))
    with torch.inference_mode():
        lane.prefill()
        while not lane.finish:
            lane.advance()
        report = check_exact(engine, request, lane, 24)
        assert lane.output == truth and report["positions"] == 24
        assert report["max_difference"] < 1e-3
        lane.logits[3][5] += 1e-3
        assert not check_exact(engine, request, lane, 24)["identical"]


def test_equal_widths_hold_the_verify_width_and_are_measured():
    widths = equal_widths(Target(make_tiny_target()))
    assert 16 in widths and widths == sorted(widths)


class TestRace:
    def run(self, engine=None, **more):
        return list(
            race(
                engine or tiny_engine(),
                Request(
                    **({"prompt": "abcabcabc", "method": "lookup", "max_new_tokens": 20} | more)
                ),
            )
        )

    def test_order_and_totals(self):
        events = self.run()
        assert (
            isinstance(events[0], Start)
            and isinstance(events[-1], Done)
            and sum(isinstance(e, Prefill) for e in events) == 2
        )
        result = events[-1].result
        spec = [e for e in events if isinstance(e, Verify)]
        written = [
            next(e.id for e in events if isinstance(e, Prefill) and e.lane == "spec"),
            *(k["id"] for e in spec for k in e.kept),
        ]
        assert (
            written == result["output_ids"]
            and result["identical"]
            and result["first_difference"] is None
        )
        assert result["spec"]["rounds"] == len(spec) and result["spec"][
            "tokens_per_round"
        ] == pytest.approx((len(written) - 1) / len(spec))
        assert (
            result["ar"]["tokens"]
            == len(written)
            == 1 + sum(isinstance(e, ArToken) for e in events)
        )
        assert result["ar"]["seconds"] == max(e.clock for e in events if isinstance(e, ArToken))
        known = {i for e in events for i in getattr(e, "vocab", {})}
        assert {str(i) for i in written} <= known
        assert [e.to_dict() for e in parse_trace(dump_trace(events))] == [
            e.to_dict() for e in events
        ]

    def test_the_lane_behind_moves_next(self):
        """Replaying the clocks: at every step the lane that moved had the smaller clock."""
        clocks, done = {"ar": 0.0, "spec": 0.0}, set()
        events = [e for e in self.run(max_new_tokens=40) if isinstance(e, (ArToken, Verify))]
        last = {
            "ar": max(i for i, e in enumerate(events) if isinstance(e, ArToken)),
            "spec": max(i for i, e in enumerate(events) if isinstance(e, Verify)),
        }
        for index, event in enumerate(events):
            lane = "ar" if isinstance(event, ArToken) else "spec"
            other = "spec" if lane == "ar" else "ar"
            assert other in done or clocks[lane] <= clocks[other]
            clocks[lane] = event.clock
            done |= {name for name, at in last.items() if at <= index}

    def test_cancel_and_close_leave_the_engine_free(self):
        """C56: Stop in mid-round, or the visitor gone; the next race is a fresh one."""
        engine = tiny_engine()
        before = self.run(engine)[-1].result["output_ids"]
        cancel, seen = threading.Event(), []
        for event in race(engine, Request("abcabcabc", "lookup", max_new_tokens=400), cancel):
            seen.append(event)
            if len(seen) == 8:
                cancel.set()
        assert (
            seen[-1].stopped
            and seen[-1].result["finish_reason"] == "stopped"
            and seen[-1].result["identical"]
            and len(seen) < 30
        )
        abandoned = race(engine, Request("abcabcabc", "lookup"))
        next(abandoned), next(abandoned)
        abandoned.close()
        assert not engine.lock.locked() and self.run(engine)[-1].result["output_ids"] == before

    def test_two_at_once_take_turns(self):
        engine, out = tiny_engine(), []
        threads = [
            threading.Thread(target=lambda: out.append(self.run(engine)[-1].result["output_ids"]))
            for _ in range(3)
        ]
        [t.start() for t in threads]
        [t.join(60) for t in threads]
        assert len(out) == 3 and out[0] == out[1] == out[2]

    def test_context_that_is_full(self):
        """C38: fewer tokens than asked for, and it says so; a prompt that does not fit is
        refused.
        """
        engine = tiny_engine(max_position_embeddings=100)
        done = self.run(engine, max_new_tokens=90)[-1].result
        assert len(done["output_ids"]) == 100 - 9 - 64 and "27" in done["note"]
        with pytest.raises(UserError, match="shorten"):
            self.run(engine, prompt="a" * 90)

    def test_difference_is_named_with_its_gap(self):
        """C24: a lane that parts from the other is reported with the position and how near a tie it
        was.
        """
        engine = engine_for(Script(lambda prefix: torch.tensor([1.0, 0.75] + [0.0] * 30)))
        request = Request("x", "ar", max_new_tokens=6)
        one, other = (Lane(engine, request, PROMPT, 6) for _ in range(2))
        for lane in (one, other):
            lane.prefill()
            while not lane.finish:
                lane.advance()
        one.ids[len(PROMPT) + 3] = 1
        from specdemo.engine.exactness import first_difference

        assert first_difference(one, other) == {"position": 3, "top2_gap": 0.25}

    def test_record_changes_nothing_that_is_written(self):
        assert (
            self.run(record=True)[-1].result["output_ids"]
            == self.run(record=False)[-1].result["output_ids"]
        )


def test_a_pass_never_costs_more_than_a_wider_one():
    costs = CostModel({1: 10.0, 2: 14.0, 4: 12.0, 8: 1.0, 16: 20.0}, 9.0, [1, 2, 4, 16])
    assert [costs.pass_ms(n) for n in (1, 2, 3, 5, 16)] == [10.0, 12.0, 12.0, 20.0, 20.0]


class Noisy:
    """A tiny target whose passes take a scripted time on a scripted clock: ``width + 20`` ms, the
    exact one-row pass 22, plus what ``noise(call)`` adds.
    """

    def __init__(self, monkeypatch, noise):
        self.target, self.clock, self.calls = Target(make_tiny_target()), 0.0, 0
        real = self.target.verify

        def verify(*words, **more):
            width = words[4]
            self.clock += (20 if more.get("attention") == "masked" else width + 21) / 1e3 + noise(
                self.calls
            )
            self.calls += 1
            return real(*words, **more)

        monkeypatch.setattr(self.target, "verify", verify)
        monkeypatch.setattr("specdemo.engine.calibrate.clock_now", lambda _: self.clock)

    def calibrated(self):
        return calibrate(self.target)


def test_costs_are_the_quiet_passes(monkeypatch):
    costs = Noisy(monkeypatch, lambda call: 0.0).calibrated()
    assert costs.ms == pytest.approx({w: w + 21 for w in WIDTHS})
    assert costs.one_row_ms == pytest.approx(20)


@pytest.mark.parametrize("kind", ["busy for a while", "now and then"])
def test_costs_outlast_a_busy_moment_at_load(monkeypatch, kind):
    """The fault: a browser started while the model loaded, each width had one slow turn, and a race
    was said to run at 0.04 times plain decoding.
    """
    rng = random.Random(0)
    noise = {
        "busy for a while": lambda call: 0.9 * (0.5 + rng.random()) if call < 18 else 0.0,
        "now and then": lambda call: 0.5 if rng.random() < 0.5 else 0.0,
    }[kind]
    costs = Noisy(monkeypatch, noise).calibrated()
    assert costs.ms == pytest.approx({w: w + 21 for w in WIDTHS})
    assert costs.one_row_ms == pytest.approx(20)


def test_costs_of_a_machine_that_is_never_quiet_stay_in_order(monkeypatch):
    rng = random.Random(1)
    noisy = Noisy(monkeypatch, lambda call: rng.random() * 2)
    costs = noisy.calibrated()
    assert noisy.clock < 150, (
        "it gives up in the end (the widths are compared on the same clock afterwards)"
    )
    by_width = [costs.pass_ms(w) for w in costs.widths]
    assert by_width == sorted(by_width)
