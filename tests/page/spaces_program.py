"""What a ZeroGPU Space does, with the real ``spaces`` package, on a machine without CUDA: a program
of its own, as importing that package changes torch.

Started with a folder that holds models.yaml. What a GPU must do is done by the CPU: where a worker
process begins, tensors that were put on the imitated GPU become those they stand for.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
os.environ |= {
    "SPACES_ZERO_GPU": "1",
    "SPACES_ZERO_DEVICE_API_URL": "http://127.0.0.1:9",
    "ZEROGPU_OFFLOAD_DIR": str(folder / "tensors"),
    "SPECDEMO_MODELS": str(folder / "models.yaml"),
    "SPECDEMO_CACHE": str(folder / "cache"),
}
if torch.version.cuda is None:  # what a torch for CPUs lacks of the names that are replaced
    torch.version.cuda = "12.8"
    torch._C._cuda_init = torch.cuda.init
    torch.cuda._is_in_bad_fork = bool

import spaces  # noqa: E402, F401
from spaces.zero import torch as emulation  # noqa: E402
from spaces.zero.torch.patching import cuda_aliases  # noqa: E402

from specdemo.ui.gpu_worker import GpuWorker  # noqa: E402

worker = GpuWorker()
worker.load("tiny")
loaded = worker.loaded["tiny"]
tensors = [*loaded.model.parameters(), *loaded.networks["block"].parameters()]
emulated = {str(tensor.device) for tensor in tensors}
packed = sum(tensor.numel() * tensor.element_size() for tensor in set(cuda_aliases.values()))

shutil.rmtree(folder / "target")  # whatever a worker process needs is in memory
shutil.rmtree(folder / "drafter")
emulation.unpatch()
for stand_in, original in list(cuda_aliases.items()):
    stand_in.data = original
loaded.device = loaded.networks["block"].rope_table.device = torch.device("cpu")

request = {"prompt": "abc", "method": "block", "max_new_tokens": 12}
events = list(worker.stream("tiny", request))
errors = [event for event in events if "error" in event]
again = list(worker.stream("tiny", {**request, "rule": "no"}))
print(
    json.dumps(
        {
            "emulated": sorted(emulated),
            "packed": packed,
            "error": errors,
            "refused": again[-1].get("error", ""),
            "done": next((e for e in events if e["kind"] == "done"), None),
            "profiles": len(list((folder / "cache" / "profiles").glob("*.json"))),
        }
    )
)
