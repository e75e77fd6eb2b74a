"""ONNX Runtime GenAI in 4 bits as a peer, in a process of its own. Its own builder rounds the
target's weights, once.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ...errors import UserError
from ...files import exclusive_lock
from ...models.fetch import cache_root, target_folder
from .base import PeerAnswer, PeerFacts, PeerSetup, RunningPeer
from .process import Child

NEEDED = "onnxruntime-genai onnxruntime onnx onnx_ir"
BUILD_SECONDS = 1800


class OnnxGenai:
    """MatMulNBits with 4-bit weights, everything else in float32."""

    def __init__(self, setup: PeerSetup):
        for name in NEEDED.replace("-", "_").split():
            if importlib.util.find_spec(name) is None:
                raise UserError(f"Not installed; “pip install {NEEDED}” brings it.")
        if setup.engine.target.device.type != "cpu":
            raise UserError("Only its CPU form is measured here.")
        folder = _built(setup)
        self._child = Child(
            "onnx_child.py", {"model": str(folder), "threads": setup.threads}, "ONNX Runtime GenAI"
        )
        self._facts = PeerFacts(
            engine=self._child.ready["engine"],
            weights="the target's, rounded by its own builder",
            dtype="int4",
            threads=setup.threads,
        )

    @property
    def facts(self) -> PeerFacts:
        return self._facts

    def answer(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        return self._child.ask(ids, max_new_tokens)

    def close(self) -> None:
        self._child.close()


def _built(setup: PeerSetup) -> Path:
    """The folder with the model in its form, made if it is not there.

    Raises:
        UserError: the builder fails, or the cache cannot be written.
    """
    pair = setup.engine.loaded.pair
    source, folder = target_folder(pair), cache_root() / "peers" / pair.id / "onnx-int4"
    try:
        with exclusive_lock(folder.with_suffix(".lock"), lambda: None):
            ours = folder / "genai_config.json"
            if ours.is_file() and ours.stat().st_mtime > (source / "config.json").stat().st_mtime:
                return folder
            setup.progress("writing the weights as ONNX int4 (once)", None)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                _build(source, Path(scratch) / "model")
                shutil.rmtree(folder, ignore_errors=True)
                (Path(scratch) / "model").replace(folder)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror or error}); free some space or set"
            " SPECDEMO_CACHE to another folder."
        ) from None
    return folder


def _build(source: Path, out: Path) -> None:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source)]
    command += ["-o", str(out), "-p", "int4", "-e", "cpu", "-c", str(out.parent / "cache")]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_SECONDS,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"Its builder did not end within {BUILD_SECONDS // 60} minutes.") from None
    if run.returncode:
        last = next((line for line in reversed(run.stderr.splitlines()) if line.strip()), "")
        raise UserError(f"Its builder could not convert this target ({last.strip()[:200]}).")


OPEN: dict[str, Callable[[PeerSetup], RunningPeer]] = {"onnxruntime-int4": OnnxGenai}
