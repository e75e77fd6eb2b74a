"""``device --graphs`` on the made-up accelerator: every step runs, and finds what it is for."""

import json
from dataclasses import replace

import pytest
import torch
from device_rounds import device_engine

from specdemo.__main__ import main
from specdemo.bench.graph_report import GraphReport
from specdemo.bench.graph_steps import replay_differs
from specdemo.bench.made_up_gpu import pretended_gpu
from specdemo.engine.graphs.attention import DoubleAttention
from specdemo.engine.graphs.capture import CudaCapture
from specdemo.engine.graphs.verify import VerifyStep
from specdemo.request import Sampling

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def engine():
    with pretended_gpu():
        return device_engine(capture=CudaCapture(torch.device("cuda")), device="cuda")


def report_of(engine, methods=("block", "tree", "best")):
    lines = []
    report = GraphReport(engine, methods, ["t1 t2", "t3"], 8, 2, lines.append, timed=False)
    return report, lines


def test_every_step_runs_there(engine, monkeypatch):
    monkeypatch.setattr("specdemo.bench.graph_report.WIDTHS", (1, 16, 64))
    with pretended_gpu():
        report, lines = report_of(engine)
        found = report.run()
    json.dumps(found)
    # nothing there takes the time that it takes on a GPU, and the profiler sees no driver
    words = [line.split()[0] for line in lines]
    assert words == ["passed"] * 4 + ["noted"] * 2 + ["passed"] and found["passed"]
    races = found["steps"]["both lanes write the same text, and nothing else waits"]
    assert races["best, temperature 0.8"]["identical"] == 2 and len(races) == 10
    assert found["steps"]["a round waits once and launches little"]["passed"] is None
    captured = found["steps"]["each graph can be captured"]["capture_seconds"]
    assert len(captured) == 8 and "16 rows, 512 slots, filtered" in captured


def test_a_replay_that_is_not_the_eager_round_is_found(engine, monkeypatch):
    """A round into which the host puts a number of its own."""
    commit, calls = VerifyStep._commit, []

    def forgetful(self, *args):
        calls.append(len(calls))
        self.state.length.add_(len(calls) % 2)
        commit(self, *args)

    with pretended_gpu():
        how = CudaCapture(torch.device("cuda"))
        arguments = (engine.target, DoubleAttention(2), how, 16, Sampling())
        assert replay_differs(*arguments) == 0
        monkeypatch.setattr(VerifyStep, "_commit", forgetful)
        assert replay_differs(*arguments) > 0


def test_a_lane_that_waits_or_writes_another_text_is_found(engine, monkeypatch):
    from specdemo.engine.graphs.lane import DeviceLane

    real = DeviceLane._pass
    with pretended_gpu():
        report, _ = report_of(engine, ["block"])
        monkeypatch.setattr(
            DeviceLane, "_pass", lambda self, *a: (int(self.graphs.state.length), real(self, *a))[1]
        )
        with pytest.raises(RuntimeError, match="synchronizing"):
            report.races()

        def wrong(self, *a):
            rows, accepted = real(self, *a)
            accepted.tokens[-1] = 5 if self.drafter else accepted.tokens[-1]
            return rows, accepted

        monkeypatch.setattr(DeviceLane, "_pass", wrong)
        assert report.races()[0] is False


def test_an_engine_without_rounds_fails_in_words(engine):
    with pretended_gpu():
        report, lines = report_of(replace(engine, rounds=None, why_no_rounds="No."))
        report._step("x", report.rounds)
        report._step("y", report.races)
        assert report.steps["x"]["why"] == "No." and lines[1].endswith(": RuntimeError: No.")


def test_a_machine_without_a_gpu_says_so(capsys):
    assert main(["device", "--graphs"]) == 1
    assert "There is no GPU here" in capsys.readouterr().err
    assert main(["device", "--pretend"]) == 1
    assert "--pretend goes with --graphs" in capsys.readouterr().err


def test_a_pair_without_a_drafter_is_refused_before_it_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr("specdemo.engine.load_engine", None)
    assert main(["device", "--pair", "gemma3-270m"]) == 1
    assert "gemma3-270m has no diffusion drafter" in capsys.readouterr().err
