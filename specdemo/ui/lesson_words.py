"""The lesson's glossary and the papers behind it."""

from __future__ import annotations

# (term, meaning)
GLOSSARY: list[tuple[str, str]] = [
    ("target", "The large model whose text is wanted. It decides every token."),
    ("drafter", "A small model, or a search in earlier text, that proposes tokens."),
    ("token", "A piece of text, often a word or part of one, that a model reads and writes."),
    ("pass", "One computation through all layers of a model, over one or several tokens."),
    ("row", "One token's place in a pass: the anchor or a drafted token."),
    ("draft", "The tokens that a drafter proposes in one round: a chain or a tree."),
    ("anchor", "The last token that is certain. A draft continues it."),
    ("verify", "To compute what the target itself would write at every place of a draft."),
    ("accept", "To keep a drafted token, as the target's rule allows it."),
    ("correction", "The target's own token in place of the first rejected one."),
    ("bonus", "The target's own token behind a draft that was accepted to its end."),
    ("round", "Drafting, then one pass of the target that verifies. It yields at least one token."),
    ("block", "The anchor and the masks behind it, which a drafter fills in together."),
    ("mask", "A place in a block whose token is not decided yet."),
    (
        "denoising step",
        "One pass of a diffusion drafter, after which some or all masks are filled in.",
    ),
    ("Markov head", "Weighs the candidates of a position anew by the token before it."),
    ("p and q", "The target's and the drafter's probability of a token."),
    ("rule “match”", "A draft is accepted only if the target's own choice is the same token."),
    ("rule “ratio”", "A draft is accepted with the chance min(1, p/q), see the ratio test."),
    ("γ (gamma)", "How many tokens are drafted in a block."),
    ("T (steps)", "How many denoising steps a draft takes."),
    ("K (drafts)", "How many drafts are made in one round, of which the target verifies some."),
    ("lattice", "Several candidates at every position, through which a path is searched."),
    ("KV cache", "Keys and values of earlier tokens, kept so that nothing is computed twice."),
    ("lossless", "The text, or its distribution, is that of plain decoding."),
    ("plain decoding", "One token a pass, without a drafter; also called autoregressive."),
    (
        "one-row baseline",
        "The fastest known pass over one token here; speed-ups are taken against the faster of it"
        " and the left lane.",
    ),
    ("speed-up", "Tokens per second with drafts over those of plain decoding."),
]

# (what, authors and year, address)
PAPERS: list[tuple[str, str, str]] = [
    (
        "Fast inference from transformers via speculative decoding: the ratio test",
        "Leviathan, Kalman, Matias 2023",
        "https://arxiv.org/abs/2211.17192",
    ),
    (
        "Accelerating LLM decoding with speculative sampling: the same test",
        "Chen et al. 2023",
        "https://arxiv.org/abs/2302.01318",
    ),
    (
        "SpecInfer: token trees and their mask",
        "Miao et al. 2024",
        "https://arxiv.org/abs/2305.09781",
    ),
    ("SpecDiff: a masked diffusion drafter", "2024", "https://arxiv.org/abs/2408.05636"),
    ("SpecDiff-2: several drafts, chosen among", "2025", "https://arxiv.org/abs/2511.00606"),
    ("DiffuSpec: a lattice and a path through it", "2025", "https://arxiv.org/abs/2510.02358"),
    ("D²SD: second drafts at likely rejections", "2026", "https://arxiv.org/abs/2606.04446"),
    ("DFlash: blocks filled in one pass", "2026", "https://arxiv.org/abs/2602.06036"),
    ("DSpark: a Markov head", "2026", "https://arxiv.org/abs/2607.05147"),
]
