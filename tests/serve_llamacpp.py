"""llama.cpp out of the wheel xllamacpp on the loopback: ``serve_llamacpp.py GGUF plain|draft|FILE``
prints its address and serves until its input is closed. ``draft`` drafts with the target itself,
FILE is the GGUF of a DFlash drafter.
"""

import os
import sys

import xllamacpp as xlc


def main(path, drafts):
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp's log
    params = xlc.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, 1024, 1
    params.cache_ram_mib, params.endpoint_metrics, params.endpoint_slots = 0, True, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    kinds = xlc.common_speculative_type
    if drafts == "draft":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path, params.speculative.draft.n_max = path, 5
    elif drafts != "plain":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_DFLASH]
        draft = params.speculative.draft
        draft.mparams.path, draft.n_max, draft.p_min = drafts, 7, 0.0
    server = xlc.Server(params)
    print(server.listening_address, file=out, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
