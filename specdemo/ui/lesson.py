"""The lesson as data: its texts, the recording each step shows, the moment, and the parts of the
view it points at.

``trace`` names a file of ``assets/traces``; ``moment`` says where the playhead is (``round``: best,
broken, branching or a number; ``stage``: denoise, draft, verify; ``at``: end; ``play``: run it);
``points`` name ``data-part`` attributes. Figures stand in braces and are read from the recording
(``FIGURES`` in ``static/lesson_figures.js``); a paragraph whose figure it lacks is left out.
"""

from __future__ import annotations

from typing import Any

STEPS: list[dict[str, Any]] = [
    {
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
    },
    {
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
    },
    {
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
        "title": "Correction or bonus",
        "text": [
            "Where a drafted token is rejected, the target's own token replaces it: the pass has"
            " computed it anyway. So a round yields at least one token, as plain decoding does.",
            "If a draft is accepted to its end, the target's next token is added: the bonus.",
        ],
        "look": (
            "the shapes: underlined = accepted draft token, dashed box with ▲ = correction, double"
            " line with + = bonus, struck through = rejected."
        ),
        "trace": "block",
        "moment": {"round": "broken", "stage": "verify"},
        "points": ["legend", "lane-spec"],
    },
    {
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
            " (“ratio” in the settings). A good question for the class: how is that tested?"
        ],
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["verdict"],
        "ask": {
            "question": "What happens to the text if the drafter is very bad?",
            "options": ["It gets worse", "It stays the same, only slower", "It stops"],
            "answer": 1,
            "why": "Wrong draft tokens are rejected. A bad drafter costs time, not quality.",
        },
    },
    {
        "title": "The lattice",
        "text": [
            "A diffusion drafter predicts all positions at once, so it offers several candidates at"
            " each, but they need not fit together: the best candidate of one position and the best"
            " of the next may belong to two different sentences.",
            "A search through this lattice looks for a path whose tokens follow from one another.",
        ],
        "look": (
            "columns are positions, rows are candidates. The thick line is the path that the target"
            " verified, ★ is the target's own choice."
        ),
        "trace": "diffuspec",
        "moment": {"round": "best", "stage": "verify"},
        "tab": "lattice",
        "points": ["round"],
    },
    {
        "title": "Where is the first rejection?",
        "text": [
            "After the first rejected token the rest of the draft is lost. Take the drafter's"
            " confidence cᵢ, its own probability of the token that it drafts at position i, for the"
            " chance that the target accepts it. Then position i is the last one accepted with"
            " the probability r(i) = c₁·c₂…cᵢ·(1 − cᵢ₊₁).",
            "Second drafts that start at the likeliest of these positions cost one more drafter"
            " pass, for all of them together.",
        ],
        "look": (
            "the bars above the tree. The bar before the first draft is r(0): that very draft is"
            " rejected. ▼ marks where new branches were drafted."
        ),
        "trace": "d2sd",
        "moment": {"round": "branching", "stage": "verify"},
        "tab": "tree",
        "points": ["round"],
    },
    {
        "title": "Trees",
        "text": [
            "The target can verify a whole tree of drafts in one pass: each branch attends only to"
            " its own ancestors. A second candidate at a position costs only one more row.",
            "How large should the tree be? Another row pays as long as it adds tokens at a better"
            " rate, expected tokens per millisecond of its own, than the round has without it.",
        ],
        "look": (
            "the thick path: the accepted branch. Was it the drafter's first choice everywhere?"
        ),
        "trace": "tree",
        "moment": {"round": "branching", "stage": "verify"},
        "tab": "tree",
        "points": ["round"],
    },
    {
        "title": "One setting: denoising steps",
        "text": [
            "More denoising steps can make better drafts, but each step costs a pass of the"
            " drafter. Switch between the recordings: same prompt, same model, one setting"
            " changed.",
            "Whether the drafts get better depends on the drafter's training, and these recordings"
            " run on borrowed weights: {borrowed}.",
        ],
        "look": (
            "accepted draft tokens per round against the speed-up. Does every step gain something?"
        ),
        "trace": "specdiff",
        "moment": {"at": "end"},
        "points": ["speedup", "chart-cost"],
        "knob": {
            "label": "Denoising steps",
            "options": [
                {"label": "1 step", "trace": "specdiff-few"},
                {"label": "2 steps", "trace": "specdiff"},
                {"label": "4 steps", "trace": "specdiff-many"},
            ],
        },
    },
    {
        "title": "When it does not pay",
        "text": [
            "Drafting and verifying cost time in every round. If few drafted tokens are accepted,"
            " because the text is hard to predict or unlike the drafter's training data, the right"
            " lane is slower.",
            "Batches are the main reason in a server: where one pass already serves many users, the"
            " arithmetic units are busy, and every row of a draft costs nearly its full price.",
            "The page shows it. A good method measures it too and returns to plain decoding until"
            " drafts pay again.",
        ],
        "look": "the speed-up chart: above the dashed line drafting pays, below it does not.",
        "teacher": [
            "Try prompts of different kinds on the Race tab: arithmetic and code are predictable,"
            " translation and stories are not."
        ],
        "trace": "hard",
        "moment": {"at": "end"},
        "points": ["chart-speedup", "speedup"],
        "cost": True,
    },
    {
        "title": "Your own race",
        "text": [
            "Open the Race tab, type a prompt, choose a method and press Run. All that you saw here"
            " works there: space plays, arrows step, Home and End jump, a click on a token opens"
            " its round.",
            "Download the trace or the web page to keep a race; the share link lets somebody else"
            " run the same one.",
        ],
        "look": (
            "the fastest method on the same kind of prompt, recorded on the machine named below the"
            " lanes."
        ),
        "trace": "best",
        "moment": {"play": True},
        "points": ["player", "save"],
    },
]


def available(steps: list[dict[str, Any]], traces: list[str]) -> list[dict[str, Any]]:
    """The steps whose recordings are there; a knob keeps the options it has recordings for."""
    out = []
    for step in steps:
        if step["trace"] not in traces:
            continue
        step = dict(step)
        if "knob" in step:
            options = [o for o in step["knob"]["options"] if o["trace"] in traces]
            step["knob"] = step["knob"] | {"options": options}
            if len(options) < 2:
                del step["knob"]
        out.append(step)
    return out
