"""The lesson's first steps: how drafts are made and verified, why nothing is lost."""

from __future__ import annotations

from typing import Any

from ..drafters import METHODS

# who offers the ratio test in the settings
RATIO = ", ".join(method.title for method in METHODS.values() if "ratio" in method.rules)

BASICS: list[dict[str, Any]] = [
    {
        "id": "one-token",
        "title": "One token per pass",
        "text": [
            "A language model computes one token, appends it to its input, and computes the next."
            " Every token needs a full pass through all the weights of the model.",
            "When a single user waits, the pass is slow because all the weights must be read from"
            " memory, not because there is much to calculate: the arithmetic units are mostly idle."
            " A server that decodes for many users in one batch keeps them busy.",
        ],
        "look": "the left lane. Each pass of the target yields exactly one token.",
        "teacher": [
            "Ask before anybody answers the question below: if the pass mostly waits for weights,"
            " what does a pass over eight tokens cost? Step 2 makes use of the answer."
        ],
        "trace": "block",
        "moment": {"play": True},
        "points": ["lane-ar"],
        "ask": {"kind": "pass"},
    },
    {
        "id": "draft-verify",
        "title": "Draft, then verify",
        "text": [
            "A small drafter proposes several tokens. The large model, the target, verifies all of"
            " them in one pass and accepts those that it would have chosen itself.",
            "A round that accepts four drafted tokens yields five tokens for the cost of about one"
            " pass.",
        ],
        "look": (
            "the right lane. One round is a run of underlined draft tokens and, after it, the boxed"
            " token that the target adds: all of them come from one target pass."
        ),
        "trace": "block",
        "moment": {"play": True},
        "points": ["lane-spec"],
        "ask": {
            "question": "A round accepts three drafted tokens. How many tokens does it yield?",
            "options": [
                {
                    "text": "3",
                    "why": "The target adds one of its own after them: the pass has computed it"
                    " anyway.",
                },
                {"text": "4", "why": "Three of the draft and the target's own."},
                {
                    "text": "As many as were drafted",
                    "why": "Only those up to the first rejection count; the rest of the draft is"
                    " lost.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "masks",
        "title": "A block of masks",
        "text": [
            "The drafter here is a diffusion model. It does not draft token after token: it takes a"
            " block of masks and predicts all of them in the same pass.",
            "It can also take several denoising steps: fill the masks of which it is most"
            " confident, run again, fill the rest.",
            "Some of the methods here add a Markov head. It does go from left to right, after the"
            " pass: for each position it weighs the candidates anew by the token before. That costs"
            " next to nothing, for it is no further pass.",
        ],
        "look": (
            "a row is a denoising step, a column is a position. The shade is the drafter's"
            " confidence; hatched cells are still masks."
        ),
        "teacher": [
            "Compare with autoregressive drafting: there each drafted token needs a pass of the"
            " drafter, so long drafts are expensive. Here a longer draft costs about the same.",
            "Verifying it takes somewhat longer: on the machine of this recording a pass"
            " of the target takes {pass_1} over 1 row, {pass_16} over 16 rows and {pass_64} over"
            " 64 rows.",
        ],
        "trace": "specdiff",
        "moment": {"round": "best", "stage": "draft"},
        "tab": "denoise",
        "points": ["round"],
        "ask": {
            "question": "A block has eight masks and the drafter takes two denoising steps. How"
            " many passes of the drafter is that?",
            "options": [
                {
                    "text": "1",
                    "why": "One pass fills all masks only with one step; each further step is a"
                    " pass of its own.",
                },
                {"text": "2", "why": "One pass a step, however many masks there are."},
                {
                    "text": "8",
                    "why": "That is an autoregressive drafter, one token a pass. A denoising step"
                    " fills several masks at once.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "guess",
        "title": "How many are accepted?",
        "text": [
            "The draft is complete, the target has not verified it yet. Read the text so far and"
            " the draft, then guess how many tokens the target accepts."
        ],
        "look": "the grey dotted tokens at the end of the right lane: drafted, not verified yet.",
        "trace": "block",
        "moment": {"round": "broken", "stage": "draft"},
        "tab": "denoise",
        "points": ["lane-spec", "round"],
        "ask": {"kind": "accepted"},
    },
    {
        "id": "correction",
        "title": "Correction or bonus",
        "text": [
            "Where a drafted token is rejected, the target's own token replaces it: the pass has"
            " computed it anyway. So a round yields at least one token, as plain decoding does.",
            "If a draft is accepted to its end, the target's next token is added: the bonus.",
        ],
        "look": (
            "the shapes in the right lane: underlined = accepted draft token, struck through ="
            " rejected, behind it in a dashed box with ▲ = its correction, double line with + at"
            " the end = bonus. The legend below the lanes has them all."
        ),
        "trace": "block",
        "moment": {"round": "bonus", "stage": "verify"},
        "rejected": True,
        "points": ["legend", "lane-spec"],
        "ask": {
            "question": "A draft is rejected at its very first token. How many tokens does the"
            " round yield?",
            "options": [
                {
                    "text": "None",
                    "why": "Then plain decoding would be ahead of it. The pass has computed the"
                    " target's own token, which is kept.",
                },
                {"text": "1", "why": "The target's own token, the correction."},
                {
                    "text": "2",
                    "why": "Behind a rejection nothing of the draft counts; there is the"
                    " correction alone.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "lossless",
        "title": "Why it is lossless",
        "text": [
            "The target decides every token. Under the rule “match” a drafted token is accepted"
            " only if the target chooses the same token at that position, also when it samples: the"
            " random number of a position is drawn once and is the same in both lanes.",
            "So both lanes write the same text, token for token. The drafter changes the speed,"
            " never the text.",
        ],
        "look": (
            "the verdict. It compares both lanes token by token, and says where they differ if they"
            " do."
        ),
        "teacher": [
            "There are also rules that keep the target's distribution instead of the same sample"
            f" (“ratio” in the settings, under {RATIO}). A good question for the class: how is that"
            " tested?"
        ],
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["verdict"],
        "ask": {
            "question": "What happens to the text if the drafter is very bad?",
            "options": [
                {
                    "text": "It gets worse",
                    "why": "No wrong token gets in: the target checks every one and replaces it.",
                },
                {
                    "text": "It stays the same, only slower",
                    "why": "Wrong draft tokens are rejected. A bad drafter costs time, not"
                    " quality.",
                },
                {
                    "text": "It stops",
                    "why": "A round whose draft is rejected at once still yields the target's own"
                    " token, as plain decoding does.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "ratio",
        "title": "The ratio test",
        "text": [
            "Most papers and engines use another test. The drafter draws a token from its"
            " distribution q, the target has the distribution p. The token is accepted with the"
            " chance min(1, p/q).",
            "After a rejection a token is drawn from what q has left over of p: max(0, p − q),"
            " scaled to sum to 1. Both together give exactly p: tokens that q proposes too often"
            " are thinned out, those it proposes too seldom are filled up.",
            "The chance that a draft is accepted is the sum of min(p, q): the more q is like p,"
            " the more is kept.",
        ],
        "look": "the draws: drafted, accepted or rejected, and what the kept tokens add up to.",
        "teacher": [
            "The text is then not the same as plain decoding's, but drawn from the same"
            " distribution. That cannot be seen in one text: our tests compare exact distributions"
            " of small models with what thousands of runs give.",
            f"In the settings this rule is “ratio”. The methods that offer it: {RATIO}; the others"
            " do not sample their drafts, so there is no q. The paper: Leviathan et al. 2023.",
        ],
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["experiment"],
        "experiment": "draw",
        "ask": {
            "question": "For one token q is 80 % and p is 40 %. How often is it accepted when it is"
            " drafted?",
            "options": [
                {
                    "text": "40 %",
                    "why": "That is p, how often it should be kept in all. It is drafted only 80 %"
                    " of the time, so it must be accepted half of those times.",
                },
                {
                    "text": "50 %",
                    "why": "p/q = 0.5. Drafted 80 %, accepted half of that: 40 % = p.",
                },
                {
                    "text": "80 %",
                    "why": "That is q, how often it is drafted. If all of that were kept, it would"
                    " stand in the text twice as often as the target wants it.",
                },
                {
                    "text": "100 %",
                    "why": "Only where p is at least q: then the drafter proposes it too seldom.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "be-the-drafter",
        "title": "Be the drafter",
        "text": [
            "Now you draft. Read the text so far, choose the next three tokens, and let the target"
            " verify them. What it wrote itself decides, token by token; after the first one that"
            " differs the rest of your draft is lost.",
            "The choices are what the target finds likely at each place if all before it is right.",
        ],
        "look": "your score, beside that of the drafter on the same text.",
        "teacher": [
            "Let the class vote on each token, and count rounds until the text is written."
        ],
        "trace": "tree",
        "moment": {"at": "start"},
        "points": ["experiment"],
        "experiment": "drafter",
    },
]
