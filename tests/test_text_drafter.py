"""Block drafters that read the text themselves: one pass of text and block is what the definition
says, training sees what decoding sees, and a trained one races.
"""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import engine_for, write
from tiny_models import make_tiny_drafter, make_tiny_target
from tiny_training import parsed, periodic_corpus

from specdemo.drafters import METHODS
from specdemo.engine.calibrate import draft_pass_ms
from specdemo.engine.target import Target
from specdemo.errors import UserError
from specdemo.models.ar_drafter import ArDrafter, ArDrafterConfig
from specdemo.models.block_drafter import MASK
from specdemo.models.dflash_layout import check_dflash
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import load_drafter, read_drafter
from specdemo.models.load import load_target
from specdemo.models.own_pair import with_drafter
from specdemo.models.pairs import get_pair
from specdemo.models.text_drafter import TextBlockDrafter
from specdemo.training.data import write_shard
from specdemo.training.initialize import init_drafter, initial_network, opened
from specdemo.training.new_drafter import new_drafter, shape_of
from specdemo.training.options import add_arguments, check_ranges
from specdemo.training.packed import packed_blocks, read_by
from specdemo.training.score import main as score_main
from specdemo.training.train import train_main

TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84, 19]
DIFFUSION = ("block", "tree", "specdiff", "specdiff2", "diffuspec", "d2sd", "best")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=[None, 5, 64])
def net(request, tiny_target):
    return make_tiny_drafter(tiny_target, "text", context_window=request.param)


def block(anchor, width=8, **shown):
    ids = torch.full((1, width), MASK)
    ids[0, 0] = anchor
    for slot, token in shown.items():
        ids[0, int(slot[1:])] = token
    return ids


@torch.no_grad()
def definition(net, text, ids):
    """States of a block ``ids [1, w]`` behind ``text``: all rows in one pass with a dense mask."""
    n, w, window = len(text), ids.shape[1], net.config.context_window or 10**6
    rows = torch.cat((torch.tensor(text, dtype=torch.int64), ids[0]))
    x = torch.where((rows == MASK)[:, None], net.mask_row, net.embedding[rows.clamp(min=0)])[None]
    row, key = torch.arange(n + w)[:, None], torch.arange(n + w)[None]
    seen = (key <= row) & (key > row - window)
    seen[n:] = (key >= n) | (key >= n - window)
    rope = net.rope(torch.arange(n + w)[None], x.dtype)

    def attend(_layer, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)

    for layer in net.layers:
        x = layer(x, None, rope, attend)
    return net.norm(x)[:, n:]


def after(net, text, pieces):
    """A cache that was given ``text`` in pieces that end at these tokens, a draft after each."""
    cache = net.new_cache(8)  # too small on purpose
    for end in pieces:
        net.read(cache, text[: end + 1])
        net.hidden(block(text[end]), end, cache)
    return cache


@pytest.mark.parametrize("pieces", [(), (2, 3, 6), range(1, 12)])
@pytest.mark.parametrize("width", [2, 8])
def test_text_and_block_in_one_pass_are_what_the_definition_says(net, pieces, width):
    # with a window, what was given at once reads no more than the window of its own
    pieces = range(1, 12) if net.config.context_window == 5 else pieces
    cache, ids = after(net, TEXT, pieces), block(TEXT[12], width)
    net.read(cache, TEXT[:13])
    found = net.hidden(ids, 12, cache)
    torch.testing.assert_close(found, definition(net, TEXT[:12], ids), rtol=1e-4, atol=1e-4)
    assert cache.end == 12 and not cache.unread
    # again, as in a second denoising step, with a token shown
    shown = block(TEXT[12], width, s1=TEXT[13])
    torch.testing.assert_close(
        net.hidden(shown, 12, cache), definition(net, TEXT[:12], shown), rtol=1e-4, atol=1e-4
    )


def test_a_window_that_moves_on_takes_nothing_from_a_row_of_text(tiny_target):
    net = make_tiny_drafter(tiny_target, "text", context_window=21, block_size=4)
    text = np.random.default_rng(0).integers(0, 120, 101).tolist()
    cache = after(net, text, range(20, 100, 20))
    net.read(cache, text)
    found = net.hidden(block(text[-1], 4), 100, cache)
    expected = definition(net, text[:-1], block(text[-1], 4))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_blocks_beside_each_other_are_each_what_it_is_alone(net):
    cache = after(net, TEXT, range(1, 9))
    net.read(cache, TEXT[:10])
    rows = torch.cat((block(TEXT[9]), block(TEXT[9], s1=7), block(TEXT[9], s1=7, s4=50)))
    together = net.hidden(rows, 9, cache)
    for i in range(3):
        alone = definition(net, TEXT[:9], rows[i : i + 1])[0]
        torch.testing.assert_close(together[i], alone, rtol=1e-4, atol=1e-4)


def test_a_text_longer_than_a_chunk_is_read_in_chunks(tiny_target):
    net = make_tiny_drafter(tiny_target, "text")
    text = np.random.default_rng(0).integers(0, 120, 400).tolist()
    cache = net.new_cache(500)
    net.read(cache, text)
    found = net.hidden(block(text[-1]), 399, cache)
    expected = definition(net, text[:-1], block(text[-1]))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_block_that_does_not_follow_the_text_is_refused(net):
    cache = net.new_cache(64)
    net.read(cache, TEXT[:9])
    with pytest.raises(ValueError, match="8 tokens were read"):
        net.hidden(block(TEXT[9]), 9, cache)
    with pytest.raises(TypeError, match="reads tokens"):
        net(noise_embeds=torch.zeros(1, 8, 64))


@pytest.mark.parametrize("visible", [0, 2])
def test_training_sees_what_decoding_sees(net, tiny_target, visible):
    tokens, anchors = torch.tensor([TEXT, TEXT[::-1]]), torch.tensor([[1, 9, 11], [3, 4, 10]])
    where = anchors[..., None] + torch.arange(8)
    ids = tokens.gather(1, where.flatten(1)).view(where.shape)
    masked = torch.arange(8).expand(ids.shape) > visible
    embedding = tiny_target.get_input_embeddings().weight
    features = read_by(net, embedding, tokens, tokens[..., :0])
    together = packed_blocks(net, embedding, features, ids, masked, anchors)
    for n, a in itertools.product(range(2), range(3)):
        spot, row = int(anchors[n, a]), tokens[n].tolist()
        one = torch.where(masked[n, a], MASK, ids[n, a])[None]
        expected = definition(net, row[:spot], one)[0]
        torch.testing.assert_close(together[n, a], expected, rtol=1e-3, atol=1e-3)


def test_an_autoregressive_drafters_layers_are_kept_when_blocks_are_opened(tiny_target, tmp_path):
    ar = new_drafter(tiny_target, "ar", 2, 0, torch.arange(100), 3)
    folder = save_drafter(ar, tmp_path / "ar", "#", int8=False)
    net, phrase = init_drafter(tiny_target, "mdlm", str(folder), 0, 8, None, shape="text")
    assert isinstance(net, TextBlockDrafter) and "seen both ways" in phrase
    for name, weight in ar.named_parameters():
        assert torch.equal(net.get_parameter(name), weight.to(torch.bfloat16).float())
    assert net.draft_vocab.tolist() == list(range(100)) and net.layer_ids == ()
    with pytest.raises(UserError, match="open its blocks with --shape text"):
        init_drafter(tiny_target, "mdlm", str(folder), 0, 8, None)
    with pytest.raises(UserError, match="another width"):
        init_drafter(make_tiny_target(hidden=32), "mdlm", str(folder), 0, 8, None, shape="text")


def test_an_opened_drafter_keeps_its_own_form_and_never_drafts_the_mask(tiny_target, tmp_path):
    config = shape_of(tiny_target.config, 1) | {"intermediate_size": 96, "context_window": 400}
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    ar = ArDrafter(ArDrafterConfig(**config), torch.arange(100))
    folder = save_drafter(ar, tmp_path / "ar", "#", int8=False)
    net, _ = init_drafter(tiny_target, "block", str(folder), 0, 8, None, mask_id=4, shape="text")
    assert net.config.rope_parameters == ar.config.rope_parameters
    assert net.config.context_window == 400 and net.config.intermediate_size == 96
    assert net.draft_vocab.tolist() == [i for i in range(100) if i != 4]
    own = ArDrafter(ArDrafterConfig(**config, own_embedding=True))
    with pytest.raises(UserError, match="A language model of its own"):
        opened(tiny_target, own, 8)


# -- from the command line to a race ---------------------------------------------------------------


def corpus_in(folder):
    text = periodic_corpus(160)
    text.tokens[:, 1:4] = np.random.default_rng(1).integers(6, 90, (160, 3))
    folder.mkdir()
    write_shard(folder, "", text.tokens, text.answer)
    (folder / "corpus.json").write_text(json.dumps({"row": 48}))
    return folder


def test_a_run_ends_in_a_folder_that_every_diffusion_method_races(
    target_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    corpus = corpus_in(tmp_path / "corpus")
    common = ("--kind", "mdlm", "--corpus", corpus, "--out", tmp_path / "run", "--quiet")
    common += ("--layers", 1, "--eval-rows", 2, "--block-size", 6, "--anchors", 6, "--batch", 4)
    first = ("--shape", "text", "--steps", 20, "--lr", 3e-3, "--labels", "hard")
    args = parsed(add_arguments, *common, *first)
    assert train_main(args) == 0 and "drafters: diffusion" in capsys.readouterr().out
    folder = tmp_path / "run" / "drafter"
    assert "| reads | the text alone" in (folder / "README.md").read_text()
    more = parsed(add_arguments, *common, "--resume", tmp_path / "run", "--steps", 24)
    assert train_main(more) == 0 and "24 steps" in capsys.readouterr().out
    other = parsed(
        add_arguments, *common, "--resume", tmp_path / "run", "--steps", 24, "--shape", "dflash"
    )
    with pytest.raises(UserError, match="has --shape text, which a resumed run keeps"):
        train_main(other)
    scored = [str(folder), str(tmp_path / "run"), "--corpus", str(corpus), "--rows", "2"]
    assert score_main([*scored, "--chain", "5"]) == 0
    assert capsys.readouterr().out.count("| /") == 2

    pair = with_drafter(replace(get_pair("smollm2-135m"), drafters={}), folder)
    assert pair.drafters == {"diffusion": str(folder)}
    loaded = load_target(pair, "fp32")
    engine = engine_for(Target(loaded.model))
    plain = write(engine, max_new=16).output
    for name in DIFFUSION:
        drafter = METHODS[name].build(loaded, METHODS[name].parse_params({}))
        assert "(drafter), which reads the text alone, at most its last 36" in drafter.weights
        lane = write(engine, drafter, max_new=16)
        assert lane.output == plain and (lane.drafting_rounds > 1 or name == "best")
    net = load_drafter(pair, "diffusion", loaded)
    times = draft_pass_ms(engine, net, [(1, 4), (2, 4)], catch_up=2, context=20, repeats=2)
    assert all(ms > 0 for ms in times.values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target_layer_ids": [0, 1]}, "reads the text alone, and its config.json"),
        ({"context_projection": "own"}, "reads the text alone, and its config.json"),
        ({"context": "pictures"}, "context"),
        ({"row_offset": 1}, "row_offset 1, which is not computed"),
        ({"causal": [False, True]}, "causal"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 4}, "layer_types"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(
    tiny_target, tiny_loaded, tmp_path, change, says
):
    net = make_tiny_drafter(tiny_target, "text", bound=False)
    folder = save_drafter(net, tmp_path / "d", "#")
    assert read_drafter(folder, tiny_loaded).reads_text
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | change))
    with pytest.raises(UserError, match=says):
        read_drafter(folder, tiny_loaded)


def test_what_reads_no_features_has_no_dflash_layout_and_ar_needs_no_shape(tiny_target):
    net = make_tiny_drafter(tiny_target, "text")
    with pytest.raises(UserError, match="it reads the text alone"):
        check_dflash(net, "x")
    with pytest.raises(UserError, match="leave --shape text out"):
        check_ranges(parsed(add_arguments, "--kind", "ar", "--shape", "text"))


def test_a_start_that_cannot_be_is_said_so(target_folder, tiny_target, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    ar = new_drafter(tiny_target, "ar", 1, 0, torch.arange(6, 100), 3)
    save_drafter(ar, tmp_path / "run" / "drafter", "#", int8=False)
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "config.json").write_text('{"model_type": "a2d-llama"}')
    loaded, corpus = load_target(get_pair("smollm2-135m"), "fp32"), periodic_corpus(4)
    for start, more, says in (
        ("run", (), "is a run; give --start"),
        ("lm", (), "choose --kind diffusion-lm"),
        ("run/drafter", ("--draft-vocab", 20), "drafts 94 tokens, which it keeps"),
        ("run/drafter", ("--draft-vocab", 0), "drafts 94 tokens, which it keeps"),
    ):
        given = ("--kind", "mdlm", "--shape", "text", "--start", tmp_path / start, *more)
        with pytest.raises(UserError, match=says):
            initial_network(loaded, corpus, parsed(add_arguments, *given))
