"""A drafter made here, served there: llama.cpp drafts with it as our own network does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_models import features_of

from specdemo.__main__ import main
from specdemo.attached.client import Step
from specdemo.attached.llamacpp import LlamaCpp
from specdemo.attached.wire import Endpoint
from specdemo.bench.peers.gguf_files import original
from specdemo.models.chat import prompt_ids
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import read_drafter
from specdemo.models.pairs import get_pair
from specdemo.training.new_drafter import new_drafter
from specdemo.training.packed import packed_blocks

pytestmark = [pytest.mark.real, pytest.mark.slow]
QUESTIONS = (
    "Explain why the sky is blue.",
    "Name three fruits and say how each tastes.",
    "What is photosynthesis?",
    "Write a short story about a lighthouse.",
    "How do birds fly?",
    "Tell me about Paris.",
)
ANSWER, DRAFTS = 24, 7  # tokens of an answer, of a draft
MASK = 16


@contextmanager
def llama_cpp(*words):
    """The address of a server of ``serve_llamacpp.py``."""
    script = Path(__file__).with_name("serve_llamacpp.py")
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def asked(address, ids):
    """The tokens of an answer, and (drafted, accepted) of each pass that drafted."""
    body = {"prompt": ids, "n_predict": ANSWER, "temperature": 0, "stream": True}
    body |= {"return_tokens": True, "timings_per_token": True, "cache_prompt": False}
    lines = Endpoint("real", address).stream("/completion", body, threading.Event())
    steps = [step for step in LlamaCpp().read(lines, True) if isinstance(step, Step)]
    tokens = [piece.id for step in steps for piece in step.pieces]
    return tokens, [(step.drafted, step.accepted) for step in steps if step.drafted]


@torch.no_grad()
def random_layer(loaded, rows):
    """A drafter of one random layer that tells contexts and places apart, and the features of each
    row. Its second matrix behind attention is zero.
    """
    net = new_drafter(loaded.model, "block", 1, DRAFTS + 1, None, 0, mask_id=MASK, shape="dflash")
    attention, mlp = net.layers[0].self_attn, net.layers[0].mlp
    seen = [features_of(loaded.model, net.layer_ids, p + t)[0].float() for p, t in rows]
    # some features are a hundred times as large as others
    net.fc.weight.normal_().div_(torch.cat(seen).square().mean(0).sqrt())
    attention.o_proj.weight.mul_(20)
    attention.q_norm.weight.fill_(4)
    for matrix in (mlp.gate_proj, mlp.up_proj):
        matrix.weight.normal_(0, matrix.in_features**-0.5)
    mlp.down_proj.weight.zero_()
    return net, seen


@torch.no_grad()
def knows_by_heart(loaded, rows):
    """A drafter that knows these texts by heart, ``rows`` of (prompt, text): the matrix that was
    left out of its random layer is solved for.
    """
    net, seen = random_layer(loaded, rows)
    mlp, embedding = net.layers[0].mlp, loaded.model.get_input_embeddings().weight.float()
    inside, residual, wanted = [], [], []
    hooks = [
        module.register_forward_hook(lambda _, inputs, __, kept=kept: kept.append(inputs[0]))
        for module, kept in ((mlp.down_proj, inside), (net.norm, residual))
    ]
    for (prompt, text), features in zip(rows, seen, strict=True):
        ids = torch.tensor(prompt + text)
        anchors = torch.arange(len(prompt), len(ids) - DRAFTS)
        blocks = ids[anchors[:, None] + torch.arange(DRAFTS + 1)]
        masked = (torch.arange(DRAFTS + 1) > 0).expand(1, *blocks.shape)
        packed_blocks(net, embedding, features[None], blocks[None], masked, anchors[None])
        wanted.append(blocks[:, 1:].flatten())
    for hook in hooks:
        hook.remove()
    inside, residual = (
        torch.cat([x.view(-1, DRAFTS + 1, x.shape[-1])[:, 1:].flatten(0, 1) for x in kept]).double()
        for kept in (inside, residual)
    )
    words = embedding - embedding.mean(0)
    # states that no other word's row fits as well, not even a longer one
    spread = (words.T @ words).double()
    states = torch.linalg.solve(spread, words[torch.cat(wanted)].double().T).T
    states = F.normalize(states, dim=-1) * 24 * residual.std()
    gram = inside.T @ inside
    gram.diagonal().add_(1e-3 * gram.diagonal().mean())
    mlp.down_proj.weight.copy_(torch.linalg.solve(gram, inside.T @ (states - residual)).T)
    return net


@torch.no_grad()
def accepted_along(loaded, net, prompt, text):
    """(drafted, accepted) of each pass that drafts where ``text`` is written with our network; as
    in llama.cpp a draft leaves room for the target's own token.
    """
    ids, at, known, rounds = prompt + text, len(prompt), 0, []
    features, _ = features_of(loaded.model, net.layer_ids, ids)
    cache = net.new_cache(len(ids))
    while (room := min(DRAFTS, len(ids) - at - 2)) > 0:
        net.extend(cache, features[known:at], known)
        block = torch.tensor([[ids[at], *[-1] * DRAFTS]])
        draft = net.logits(net.hidden(block, at, cache))[0, 1 : 1 + room].argmax(-1)
        equal = draft == torch.tensor(ids[at + 1 : at + 1 + room])
        rounds.append((room, int(equal.int().cumprod(0).sum())))
        known, at = at, at + rounds[-1][1] + 1
    return rounds


def counted(answers):
    """All drafted and all accepted tokens."""
    return np.sum([pair for rounds in answers for pair in rounds], 0)


def test_llama_cpp_drafts_as_our_network_does(loaded_bf16, tmp_path):
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the wheel xllamacpp of requirements-dev.txt is not installed")
    prompts = [prompt_ids(loaded_bf16.tokenizer, question) for question in QUESTIONS]
    target = original(get_pair("smollm2-135m"), lambda message, fraction=None: None)
    with llama_cpp(target, "plain") as address:
        plain = [asked(address, ids)[0] for ids in prompts]
    rows = list(zip(prompts, plain, strict=True))
    folder = save_drafter(knows_by_heart(loaded_bf16, rows), tmp_path / "drafter", "#")
    file = tmp_path / "drafter.gguf"
    assert main(["export-drafter", str(folder), "--to", "gguf", "--out", str(file)]) == 0
    with llama_cpp(target, file) as address:
        answers = [asked(address, ids) for ids in prompts]
    assert [text for text, _ in answers] == plain
    net = read_drafter(folder, loaded_bf16)
    theirs = counted(rounds for _, rounds in answers)
    ours = counted(accepted_along(loaded_bf16, net, *row) for row in rows)
    assert theirs[1] > 0.7 * theirs[0], "it knows them by heart"
    assert theirs[1] / theirs[0] == pytest.approx(ours[1] / ours[0], rel=0.02)
