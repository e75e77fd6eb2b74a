"""What a training run holds in memory: what it says beforehand, and that it does not grow."""

from dataclasses import replace

import psutil
import pytest
import torch
from tiny_training import periodic_corpus, trainer_for
from torch.utils._python_dispatch import TorchDispatchMode

from specdemo.training.estimate import memory_bytes
from specdemo.training.evaluate import Evaluator, Passages
from specdemo.training.markov import with_head
from specdemo.training.new_drafter import new_drafter
from specdemo.training.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_memory_named_includes_what_the_process_holds(tiny_target):
    net, settings = (
        new_drafter(tiny_target, "block", layers=1, block_size=6, draft_vocab=None, seed=3),
        Settings(batch=2, anchors=4),
    )
    held = psutil.Process().memory_info().rss
    small, large = (
        memory_bytes(tiny_target, net, s, 128, 48)
        for s in (settings, replace(settings, anchors=4000))
    )
    assert held + 12 * sum(p.numel() for p in net.parameters()) < small < large


class Sizes(TorchDispatchMode):
    """Which sizes matrix products had, backward passes included."""

    def __init__(self):
        super().__init__()
        self.met = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation.overloadpacket in (
            torch.ops.aten.mm,
            torch.ops.aten.addmm,
            torch.ops.aten.bmm,
        ):
            self.met.add(
                (str(operation), *(tuple(x.shape) for x in args if isinstance(x, torch.Tensor)))
            )
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["block", "mdlm", "streak", "markov", "ar"])
def test_training_meets_few_sizes_of_matrix_products(tiny_target, tmp_path, kind):
    """oneDNN keeps memory for every size: a run whose steps all bring another grows by
    gigabytes.
    """
    trainer = trainer_for(tiny_target, tmp_path, kind, steps=8, mix=0.5)
    if kind == "markov":
        with_head(trainer.net, 4)
    trainer.step_loss.corpus.answer[::3, 30:] = False  # rows differ in how much of them counts
    trainer.step_loss.corpus.answer[1::3, 9:] = False
    net, lengths = trainer.net, []
    evaluator = Evaluator(tiny_target, net, tiny_target.lm_head.weight, None, 5)
    for cut in (range(8, 20), range(20, 45)):  # passages of other lengths each time
        with Sizes() as seen:
            trainer.run(show=False, log_every=9)
            trainer.settings.steps += 8
            for end in cut:
                one = periodic_corpus(1)
                one.answer[:, end:] = False
                evaluator.evaluate(Passages(one.tokens, one.answer, ["a"]), kind)
        lengths.append(seen.met)
    assert lengths[0] and len(lengths[1] - lengths[0]) < 5
