"""Drafters that are published and cannot be used here, by name and with the reason.

Sources: Orthrus (arXiv 2605.12825; github.com/chiennv2000/orthrus, ``src/model.py``), TiDAR (arXiv
2511.08923), SDLM (arXiv 2509.24007; github.com/OpenGVLab/SDLM, ``attn_mask_utils.py``), CoDA
(github.com/SalesforceAIResearch/CoDA, ``modeling_coda.py``), EAGLE-3 (arXiv 2503.01840).
"""

from __future__ import annotations

import re
from typing import Any

# what a model_type or the name of an architecture holds, without case and separators
KNOWN: dict[str, str] = {
    "orthrus": "Orthrus, which reads the keys and values of the target that it is part of instead"
    " of its hidden states",
    "tidar": "TiDAR, one model that drafts and verifies in the same pass, so no drafter can be"
    " taken out of it",
    "sdlm": "SDLM, whose text is causal and whose last block alone goes both ways, a pattern that"
    " is not computed here",
    "^coda": "CoDA, which builds a causal mask for an attention that is published apart from its"
    " model, so who sees whom has not been compared here",
    "efficientdlm": "Efficient-DLM, whose code has not been compared here",
    "wedlm": "WeDLM, which fills masks under causal attention with its rows in another order",
    "diffusiongemma": "DiffusionGemma, which starts from random tokens instead of masks",
    "llada(2|moe)": "a LLaDA with experts, whose layers are not computed here",
    "eagle": "EAGLE, which drafts one token after another from the target's features and is no"
    " diffusion drafter",
}


def why_not_known(config: dict[str, Any]) -> str:
    """Which of :data:`KNOWN` a ``config.json`` describes, in words; empty: none."""
    names = config.get("architectures")
    words = [config.get("model_type"), *(names if isinstance(names, list) else [])]
    plain = [re.sub("[^a-z0-9]", "", str(word).lower()) for word in words]
    return next((why for key, why in KNOWN.items() if any(re.search(key, w) for w in plain)), "")
