"""A corpus that a tiny drafter learns in seconds, and a trainer on it."""

import argparse

import numpy as np

from specdemo.training.data import Corpus
from specdemo.training.new_drafter import new_drafter
from specdemo.training.settings import Settings
from specdemo.training.trainer import Trainer

# text a small drafter learns in seconds: a fixed word order with a random offset a row
PERIOD = [7, 21, 3, 90, 44, 15, 61, 33]


def periodic_corpus(rows=64, length=48, seed=0):
    rng = np.random.default_rng(seed)
    tokens = np.stack(
        [np.resize(np.roll(PERIOD, int(rng.integers(8))), length) for _ in range(rows)]
    ).astype(np.uint16)
    tokens[:, 0] = rng.integers(100, 120, rows)
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, 4:] = True
    return Corpus(tokens, answer, {})


def trainer_for(target, out, kind="block", steps=60, **more):
    net = new_drafter(target, kind, layers=1, block_size=6, draft_vocab=None, seed=3)
    return Trainer(
        target,
        net,
        periodic_corpus(),
        Settings(
            **{
                "kind": kind,
                "steps": steps,
                "batch": 4,
                "anchors": 6,
                "lr": 3e-3,
                "save_minutes": 9,
                "eval_minutes": 9,
                **more,
            }
        ),
        out,
    )


def parsed(add, *words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args([str(w) for w in words])
