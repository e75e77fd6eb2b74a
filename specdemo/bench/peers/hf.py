"""transformers' own ``generate`` on the very model in memory: dynamic or static cache, prompt
lookup, assisted by its own first layers, and its DFlash generator with the pair's drafter.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from ...errors import UserError
from ...hardware import clock_now
from .base import PeerAnswer, PeerFacts, PeerSetup

LOOKUP_TOKENS = 7  # transformers' documentation proposes 10; a CPU pays for every row


class Clock(StoppingCriteria):
    """Notes the time and the length after every round, and never stops."""

    def __init__(self, device: torch.device):
        self.device, self.marks = device, list[tuple[float, int]]()

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **_: Any) -> Any:
        self.marks.append((clock_now(self.device), input_ids.shape[1]))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class Generate:
    """One way to call ``generate``.

    Args:
        settings: of the GenerationConfig. more: arguments of ``generate`` itself.
    """

    def __init__(
        self,
        setup: PeerSetup,
        settings: dict[str, Any],
        drafts: str = "",
        note: str = "",
        more: dict[str, Any] | None = None,
    ):
        loaded = setup.engine.loaded
        self.model, self.more, self.threads = loaded.model, more or {}, setup.threads
        self.settings = {
            "do_sample": False,
            "eos_token_id": list(loaded.eos_ids),
            "pad_token_id": loaded.eos_ids[0] if loaded.eos_ids else None,
        } | settings
        self.facts = PeerFacts(
            engine=f"transformers {transformers.__version__}",
            weights="the model in memory",
            dtype=setup.dtype,
            threads=setup.threads,
            drafts=drafts,
            note=note,
        )

    @torch.inference_mode()
    def answer(self, ids: list[int], max_new_tokens: int) -> PeerAnswer:
        device = self.model.device
        prompt, clock = torch.tensor([ids], device=device), Clock(device)
        config = GenerationConfig(max_new_tokens=max_new_tokens, **self.settings)
        if torch.get_num_threads() != self.threads:  # a race beside other work left fewer
            torch.set_num_threads(self.threads)
        began = clock_now(device)
        out = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=config,
            stopping_criteria=StoppingCriteriaList([clock]),
            **self.more,
        )
        (first, length), (last, _) = clock.marks[0], clock.marks[-1]
        return PeerAnswer(
            ids=out[0, len(ids) :].tolist(),
            tokens=out.shape[1] - length,
            seconds=last - first,
            ttft_seconds=first - began,
            rounds=len(clock.marks) - 1,
        )

    def close(self) -> None:
        pass


def dynamic(setup: PeerSetup) -> Generate:
    return Generate(setup, {})


def static(setup: PeerSetup) -> Generate:
    return Generate(setup, {"cache_implementation": "static", "disable_compile": True})


def compiled(setup: PeerSetup) -> Generate:
    """Raises UserError: there is no C++ compiler, which torch.compile needs on a CPU."""
    if setup.engine.target.device.type == "cpu" and not (
        shutil.which("g++") or shutil.which("clang++")
    ):
        raise UserError("torch.compile needs a C++ compiler; install g++ or clang++.")
    from transformers import CompileConfig

    config = CompileConfig(fullgraph=False, mode="default")
    vars(config)["_compile_all_devices"] = True  # generate compiles for GPUs alone unless told
    return Generate(
        setup,
        {"cache_implementation": "static", "compile_config": config},
        note="compiled with torch.compile before the figures",
    )


def lookup(setup: PeerSetup) -> Generate:
    return Generate(
        setup,
        {"prompt_lookup_num_tokens": LOOKUP_TOKENS},
        drafts=f"prompt lookup, {LOOKUP_TOKENS} tokens",
    )


def early_exit(setup: PeerSetup) -> Generate:
    layers = max(1, len(setup.engine.target.layers) // 3)
    return Generate(
        setup,
        {"assistant_early_exit": layers},
        drafts=f"assisted by its own first {layers} layers",
        note="the target was not trained for leaving early",
    )


def dflash(setup: PeerSetup) -> Generate:
    """Raises UserError: this transformers has no DFlash generator, or the pair no drafter for
    it.
    """
    if not hasattr(transformers.generation, "DFlashTokenCandidateGenerator"):
        raise UserError(
            f"transformers {transformers.__version__} has no DFlash generator; install 5.24 or"
            " later."
        )
    from ...models.block_drafter import BlockDrafter
    from ...models.drafters import load_drafter

    net = load_drafter(setup.engine.loaded.pair, "block", setup.engine.loaded)
    if not isinstance(net, BlockDrafter):
        raise UserError("The pair has no block drafter; choose a pair with one.")
    if net.reads_text or not net.is_plain:
        raise UserError(
            "transformers' DFlash generator reads plain DFlash blocks only, and the pair's drafter"
            " is of another kind; leave transformers-dflash out."
        )
    words = f"DFlash with the pair's drafter, {net.config.block_size - 1} tokens"
    return Generate(
        setup,
        {"speculation_type": "dflash"},
        drafts=words,
        note="without the drafter's Markov head and window" if net.config.markov_rank else "",
        more={"assistant_model": net},
    )


OPEN: dict[str, Callable[[PeerSetup], Generate]] = {
    "transformers": dynamic,
    "transformers-static": static,
    "transformers-compile": compiled,
    "transformers-lookup": lookup,
    "transformers-early-exit": early_exit,
    "transformers-dflash": dflash,
}
