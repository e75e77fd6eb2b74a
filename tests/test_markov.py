"""The Markov head: what it computes, where it is asked, how it is trained, and what reaches the
drafts.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripted_net import FakeNet, context, loaded, logs
from tiny_models import features_of, make_tiny_drafter
from tiny_training import parsed

from specdemo.drafters import METHODS
from specdemo.drafters.parts import block_context
from specdemo.drafters.parts.trees import best_first
from specdemo.errors import UserError
from specdemo.models.drafter_files import save_drafter
from specdemo.models.drafters import read_drafter
from specdemo.models.markov import MarkovHead, MarkovTables, unit, with_rest
from specdemo.training.data import Corpus
from specdemo.training.evaluate import Evaluator, Rounds, add_rounds
from specdemo.training.markov import candidates, markov_loss, with_head
from specdemo.training.new_drafter import new_drafter
from specdemo.training.settings import Settings
from specdemo.training.train import add_arguments, train_main
from specdemo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def random_head(size=16, rank=8, seed=0):
    torch.manual_seed(seed)
    head = MarkovHead(size, rank)
    torch.nn.init.normal_(head.out.weight, std=0.5)
    return head.requires_grad_(False)


# -- the head itself -------------------------------------------------------------------------------


def test_the_tables_in_use_give_what_the_head_says():
    head, words, rows = random_head(), torch.randn(40, 16), torch.randn(40, 16)
    hidden, before, columns = (
        torch.randn(3, 16),
        torch.tensor([[1, 2], [39, 0], [7, 7]]),
        torch.tensor([[4, 5, 6], [0, 1, 2], [9, 30, 8]]),
    )
    logp = torch.randn(3, 40).log_softmax(-1).gather(1, columns)
    ours = MarkovTables(head, words, rows)(hidden, before, columns, logp)
    for i in range(3):
        for j in range(2):  # the formula, written out for one pair of slots
            shift = head.out(
                F.silu(head.state(unit(hidden[i])) + head.before(unit(words[before[i, j]])))
            )
            bent = torch.cat(
                (
                    logp[i] + rows[columns[i]] @ shift[:-1],
                    (1 - logp[i].exp().sum()).log()[None] + shift[-1],
                )
            )
            torch.testing.assert_close(ours[i, j], bent.softmax(0)[:-1])
    direct = with_rest(logp) + head(hidden, words[before[:, 0]], rows[columns])
    torch.testing.assert_close(ours[:, 0], direct.softmax(-1)[:, :-1])


def test_a_fresh_head_changes_nothing():
    logp = torch.randn(2, 20).log_softmax(-1)[:, :5]
    same = MarkovTables(MarkovHead(16, 4), torch.randn(20, 16), torch.randn(20, 16))(
        torch.randn(2, 16), torch.zeros(2, 1, dtype=torch.long), torch.arange(5).expand(2, 5), logp
    )
    torch.testing.assert_close(same[:, 0], logp.exp())


# -- where it is asked -----------------------------------------------------------------------------


def scripted(**more):
    """Two positions: alone, 1 and 2 (then 3 and 4) are nearly even; the head says 4 follows 1 and 3
    follows 2.
    """
    net = FakeNet(
        lambda block, at: logs(
            [0.125] * 8, [0, 0.55, 0.45, 0, 0, 0, 0, 0], [0, 0, 0, 0.6, 0.4, 0, 0, 0]
        ),
        **more,
    )

    def next_probs(hidden, before, columns, logp):
        other = {1: 4, 2: 3}
        probs = torch.zeros(1, before.shape[1], columns.shape[1])
        for b, token in enumerate(before[0].tolist()):
            for c, word in enumerate(columns[0].tolist()):
                probs[0, b, c] = 0.9 if other.get(token) == word else 0.0125
        return probs

    net.markov_tables = next_probs
    return net


def asked(net, markov_head=True):
    """The candidates of one pass of the scripted network."""
    one = block_context.BlockContext(net)
    one.start(16)
    return one.to_table(one.hidden([[5, -1, -1]], 0)[0, 1:], markov_head)


def test_a_table_answers_behind_a_token_and_by_itself_where_it_knows_nothing():
    table = asked(scripted())
    assert [t for t, _ in table.rows[1]] == [3, 4] and table.has_markov_head
    assert table.conditional(1, 1)[0] == (4, pytest.approx(0.9)) and table.conditional(1, 2)[0] == (
        3,
        pytest.approx(0.9),
    )
    assert (
        table.conditional(0, 5) is None
        and table.conditional(1, 99) is None
        and table.conditional(1, 1) is table.conditional(1, 1)
    )
    assert [row[0][0] for row in table.chain()] == [1, 4] and [
        row[0][0] for row in table.chain(1)
    ] == [3]
    plain = asked(scripted(), markov_head=False)
    assert (
        not plain.has_markov_head
        and plain.rows == table.rows
        and [row[0][0] for row in plain.chain()] == [1, 3]
    )


def test_a_reduced_vocabulary_is_mapped_on_both_sides():
    table = asked(scripted(vocab_ids=[10, 11, 12, 13, 14, 15, 16, 17]))
    assert (
        table.conditional(1, 11)[0][0] == 14
        and table.conditional(1, 1) is None
        and [row[0][0] for row in table.chain()] == [11, 14]
    )


def test_the_best_first_tree_follows_the_head():
    nodes = best_first(*asked(scripted()).choices(), 4)
    assert [(n.parent, n.token) for n in nodes] == [(-1, 1), (0, 4), (-1, 2), (2, 3)]
    assert [n.path_prob for n in nodes] == pytest.approx([0.55, 0.495, 0.45, 0.405])


@pytest.mark.parametrize("name", ["block", "tree", "d2sd", "best"])
def test_methods_draft_what_follows_and_can_be_told_not_to(monkeypatch, name):
    for markov_head, want in ((True, [1, 4]), (False, [1, 3])):
        extra = {"branches": 0} if name == "d2sd" else {"adaptive": False} if name == "best" else {}
        drafter = METHODS[name].build(
            loaded(monkeypatch, block=scripted(block_size=3)),
            METHODS[name].parse_params({"gamma": 2, "markov_head": markov_head, **extra}),
        )
        drafter.start([5, 6], 16)
        draft = drafter.propose(context([5, 6, 7], (0, 2), record=True, pass_ms=lambda rows: 10.0))
        first = draft.parent.index(0) if name in ("tree", "best") else 1
        assert [draft.tokens[0], draft.tokens[first]] == want, (markov_head, draft)
        if name != "d2sd":
            assert [f.ids for f in draft.frames] == ([[1, 3], [1, 4]] if markov_head else [[1, 3]])


# -- on disk and in training -----------------------------------------------------------------------


def test_a_drafter_keeps_its_head_on_disk_and_odd_ranks_are_refused(
    tiny_loaded, tiny_target, tmp_path
):
    net = make_tiny_drafter(tiny_target, markov_rank=6)
    torch.nn.init.normal_(net.markov.out.weight, std=0.1)
    place = save_drafter(net, tmp_path / "d", "#", draft_vocab=torch.arange(3, 99))
    again = read_drafter(place, tiny_loaded)
    assert again.config.markov_rank == 6 and again.markov_tables.before.shape == (96, 6)
    assert torch.allclose(again.markov.out.weight.float(), net.markov.out.weight, atol=0.01)
    config = place / "config.json"
    whole = config.read_text()
    config.write_text(whole.replace('"markov_rank": 6,\n', ""))
    assert read_drafter(place, tiny_loaded).config.markov_rank == 6  # told from the weights
    for wrong in ("-1", '"six"', "7"):
        config.write_text(whole.replace('"markov_rank": 6', f'"markov_rank": {wrong}'))
        with pytest.raises(UserError, match="Markov|markov"):
            read_drafter(place, tiny_loaded)


def test_candidates_and_loss_against_the_plain_formula():
    torch.manual_seed(1)
    hidden, head, labels, embedding = (
        torch.randn(6, 16),
        torch.randn(50, 16),
        torch.tensor([3, 49, 7, 0, 11, 25]),
        torch.randn(60, 16),
    )
    net, before, weight = (
        SimpleNamespace(markov=random_head()),
        torch.tensor([59, 1, 2, 3, 4, 5]),
        torch.rand(6),
    )
    columns, marginal, place = candidates(hidden, head, labels, chunk=4)
    logq = (hidden @ head.T).log_softmax(-1)
    assert columns.shape == (6, 32) and torch.equal(columns, logq.topk(32, -1).indices)
    assert [int(p) for p in place] == [
        row.tolist().index(y) if y in row.tolist() else 32
        for row, y in zip(columns, labels.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        marginal[:, -1].exp(), 1 - logq.topk(32, -1).values.exp().sum(-1), atol=1e-3, rtol=1e-3
    )
    total = 0.0
    for i in range(6):
        shift = net.markov.out(
            F.silu(
                net.markov.state(unit(hidden[i])) + net.markov.before(unit(embedding[before[i]]))
            )
        )
        score = torch.cat(
            (marginal[i, :-1] + head[columns[i]] @ shift[:-1], marginal[i, -1:] + shift[-1:])
        )
        total -= weight[i] * score.log_softmax(0)[place[i]]
    loss, hit = markov_loss(net, embedding, head, hidden, before, labels, weight, chunk=4)
    assert loss.item() == pytest.approx((total / weight.sum()).item(), rel=1e-4) and hit.shape == (
        6,
    )


def either_or_corpus(rows=64, length=48):
    """Pairs of words, "7 21" or "90 44", in random order: a position alone is a coin, behind its
    first word the second is sure.
    """
    rng = np.random.default_rng(0)
    tokens = np.stack(
        [
            np.array([[7, 21], [90, 44]])[rng.integers(2, size=length // 2)].reshape(-1)
            for _ in range(rows)
        ]
    ).astype(np.uint16)
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, 4:] = True
    return Corpus(tokens, answer, {})


@pytest.fixture(scope="module")
def headed(tiny_target, tmp_path_factory):
    net, place = (
        new_drafter(tiny_target, "block", layers=1, block_size=6, draft_vocab=None, seed=3),
        tmp_path_factory.mktemp("headed"),
    )
    common = dict(steps=60, batch=4, anchors=6, save_minutes=9, eval_minutes=9)
    Trainer(
        tiny_target, net, either_or_corpus(), Settings(kind="block", lr=3e-3, **common), place
    ).run(show=False)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    trainer = Trainer(
        tiny_target,
        with_head(net, 16),
        either_or_corpus(),
        Settings(kind="markov", lr=2e-2, **common),
        place,
    )
    trainer.run(log_every=5, show=False)
    return trainer, before


def test_only_the_head_learns_and_it_learns_what_follows(headed):
    trainer, before = headed
    assert trainer.curve[-1]["loss"] < 0.7 * trainer.curve[0]["loss"]
    state = trainer.net.state_dict()
    assert all(torch.equal(state[k], v) for k, v in before.items()) and set(state) - set(
        before
    ) == {f"markov.{n}" for n in ("state.weight", "state.bias", "before.weight", "out.weight")}


def test_the_computed_race_is_the_race_with_a_head(headed, tiny_target):
    net = headed[0].net
    evaluator = Evaluator(tiny_target, net, tiny_target.lm_head.weight, None, net.block_size - 1)
    evaluator.refresh_head()
    net.bind(tiny_target.get_input_embeddings().weight, tiny_target.get_output_embeddings().weight)
    corpus, kept = either_or_corpus(3), []
    for row, answer in zip(corpus.tokens, corpus.answer, strict=True):
        text, computed, at = row.tolist(), Rounds(), 4
        features = features_of(tiny_target, net.layer_ids, text)[0]
        run = np.zeros(len(row), dtype=np.int64)
        run[4:] = evaluator.block_runs(
            torch.tensor(text), torch.arange(4, len(row)), features[None]
        ).numpy()
        add_rounds(run, answer, computed)
        one, rounds = block_context.BlockContext(net), []
        # the same race with the drafter's own cache and the methods' own table
        while at < len(text) - 1:
            one.start(128)
            one.extend(features[:at], 0)
            draft = [
                r[0][0]
                for r in one.to_table(one.hidden([[text[at]] + [-1] * 5], at)[0, 1:]).chain()
            ]
            got = next(
                (
                    k
                    for k, token in enumerate(draft)
                    if at + k + 1 >= len(text) or token != text[at + k + 1]
                ),
                len(draft),
            )
            rounds.append(got)
            at += got + 1
        assert computed.accepted == rounds
        kept += rounds
    assert len(set(kept)) > 1


def test_a_head_needs_a_drafter_to_stand_on(target_folder, tmp_path, monkeypatch):
    from specdemo.training.data import write_shard

    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(target_folder))
    corpus = either_or_corpus(24)
    (tmp_path / "c").mkdir()
    write_shard(tmp_path / "c", "", corpus.tokens, corpus.answer)
    (tmp_path / "c" / "corpus.json").write_text('{"row": 48}')
    common = ("--corpus", tmp_path / "c", "--steps", 2, "--batch", 2, "--anchors", 3, "--quiet")
    with pytest.raises(UserError, match="finished block drafter"):
        train_main(parsed(add_arguments, "--kind", "markov", *common))
    assert (
        train_main(
            parsed(
                add_arguments,
                "--kind",
                "block",
                *common,
                "--layers",
                1,
                "--block-size",
                6,
                "--draft-vocab",
                64,
                "--out",
                tmp_path / "b",
            )
        )
        == 0
    )
    words = (
        "--kind",
        "markov",
        *common,
        "--start",
        tmp_path / "b" / "drafter",
        "--rank",
        8,
        "--out",
        tmp_path / "m",
    )
    assert train_main(parsed(add_arguments, *words)) == 0
    net = read_drafter(tmp_path / "m" / "drafter")
    assert (
        net.config.markov_rank == 8
        and "Markov head" in (tmp_path / "m" / "drafter" / "README.md").read_text()
    )
    # goes on
    assert (
        train_main(
            parsed(add_arguments, *words[:4], "--steps", 3, "--resume", tmp_path / "m", "--quiet")
        )
        == 0
    )
    again = (
        "--kind",
        "block",
        *common,
        "--start",
        tmp_path / "m" / "drafter",
        "--out",
        tmp_path / "again",
    )
    assert train_main(parsed(add_arguments, *again)) == 0
    # other states need another head
    assert read_drafter(tmp_path / "again" / "drafter").markov is None
