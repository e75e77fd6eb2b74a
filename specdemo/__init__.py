"""SpecDemo: watch a language model write the same tokens faster with a diffusion drafter."""

import os

__version__ = "0.1.0"

# Huge pages for torch's CPU tensors: a small target streams all its weights every pass, and this
# spares the page walks. Read by torch when it is first imported; huge_pages.py does the same for
# packed weights.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# torch's threads turn this often before they sleep (GNU's OpenMP; milliseconds, if it is not said),
# and meanwhile keep a core from the threads of compiled passes (models/team.py). Often enough for
# the next product of the same pass.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# The same sums in the same order in every product on a GPU. Read by cuBLAS at its first product.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
