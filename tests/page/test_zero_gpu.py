"""A ZeroGPU Space with the real ``spaces`` package; the CPU does what a GPU would have to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import make_byte_tokenizer, make_tiny_drafter, make_tiny_target

from specdemo.models.drafter_files import save_drafter
from specdemo.ui.gpu_worker import gpu_seconds

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_worker_processes_find_the_weights_in_memory(tmp_path):
    """Read once, in the main process, onto the GPU that ``spaces`` imitates there; the folders may
    then be gone. The first worker process keeps what it measured.
    """
    pytest.importorskip("spaces")
    target = make_tiny_target(vocab=260, max_position_embeddings=512)
    target.config.eos_token_id = target.generation_config.eos_token_id = 257
    target.to(torch.bfloat16).save_pretrained(tmp_path / "target")
    make_byte_tokenizer(
        "{% for m in messages %}<|a|>{{ m['content'] }}<|end|>{% endfor %}<|a|>"
    ).save_pretrained(tmp_path / "target")
    drafter = make_tiny_drafter(target.float(), bound=False)
    save_drafter(drafter, tmp_path / "drafter", "#")
    (tmp_path / "models.yaml").write_text(
        "pairs:\n  tiny: {title: T, license: L, size: S, target: {path: target},"
        " drafters: {block: drafter}}\n"
    )
    done = subprocess.run(
        [sys.executable, ROOT / "tests/page/spaces_program.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["emulated"] == ["cuda:0"] and said["packed"] > 100_000
    assert not said["error"] and said["done"]["result"]["identical"] is True
    assert said["profiles"] == 1
    assert "rule" in said["refused"]


def test_the_gpu_is_asked_for_no_longer_than_a_race_needs():
    one, many = (gpu_seconds("p", {"max_new_tokens": n}) for n in (1, 256))
    assert 20 <= one < many <= 45 and gpu_seconds("p", {"max_new_tokens": 10**4}) == 110
