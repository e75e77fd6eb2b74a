"""The lesson's later steps: searches, trees, training, when drafting pays."""

from __future__ import annotations

from typing import Any

DEPTH: list[dict[str, Any]] = [
    {
        "id": "lattice",
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
        "ask": {
            "question": "Why not just take the best candidate at every position?",
            "options": [
                {
                    "text": "It would be slower",
                    "why": "Taking the best one costs nothing at all; the search is what costs"
                    " time.",
                },
                {
                    "text": "They may not fit together",
                    "why": "Each was predicted without knowing its neighbours.",
                },
                {
                    "text": "The target would accept anything",
                    "why": "The target accepts only what it would write itself.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "boundary",
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
        "ask": {
            "question": "c₁ = 0.9 and c₂ = 0.5. How likely is it that exactly the first token is"
            " accepted?",
            "options": [
                {
                    "text": "90 %",
                    "why": "That is the chance that the first one is accepted, whatever comes"
                    " next.",
                },
                {"text": "45 %", "why": "0.9 · (1 − 0.5)."},
                {
                    "text": "50 %",
                    "why": "The second is rejected half of the time, but only if the first was"
                    " accepted.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "trees",
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
        "ask": {
            "question": "The target accepts one branch of a tree. What becomes of the others?",
            "options": [
                {
                    "text": "They are tried in a later round",
                    "why": "The text has gone on; they would continue another one.",
                },
                {
                    "text": "They are dropped",
                    "why": "They cost rows of a pass that was made anyway.",
                },
                {
                    "text": "They are averaged",
                    "why": "Tokens cannot be averaged: the text is one of the branches.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "mask",
        "title": "The tree's attention mask",
        "text": [
            "How can one pass verify several continuations? All tokens of the tree stand side by"
            " side as rows of one batch of positions, and a mask says who sees whom: each row"
            " attends to the cache and to its own ancestors, never to another branch. So every row"
            " is computed as if its branch were the only text.",
            "The cache holds keys and values of all earlier tokens. The pass adds those of every"
            " row; after the verdict the rows of the accepted path are kept and moved together, all"
            " others are dropped. Nothing has to be computed again.",
        ],
        "look": "a row of the mask, then press The verdict and watch the cache.",
        "teacher": [
            "Without the mask two branches at the same position would see each other, and the"
            " target would verify a text that nobody wrote.",
            "Tokens at the same depth also share one position number.",
        ],
        "trace": "tree",
        "moment": {"round": "branching", "stage": "verify"},
        "tab": "tree",
        "points": ["experiment"],
        "experiment": "mask",
        "ask": {
            "question": "Two branches hold different tokens at depth 2. Which of them does the row"
            " below the first one attend to?",
            "options": [
                {
                    "text": "Both",
                    "why": "Then it would follow two texts at once. The mask hides every branch but"
                    " its own.",
                },
                {"text": "Its own parent only, and all before it", "why": "Its ancestors."},
                {
                    "text": "Neither",
                    "why": "Then it would not know the token before it; it needs its ancestors.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "training",
        "title": "How a drafter is trained",
        "text": [
            "The target writes many texts itself. From each text blocks are cut: the anchor, the"
            " last known token, then masks in place of the next tokens. The drafter sees what the"
            " target's layers computed up to the anchor, and learns to name the tokens that the"
            " target wrote behind the masks.",
            "It learns the target's words, not the truth: a drafter that corrects the target would"
            " be rejected.",
            "A streak counts: after the first wrong token nothing is kept. So the loss weighs early"
            " positions more, or takes the expected length of the streak itself.",
        ],
        "look": (
            "the learning curve of the Markov head of this page's own drafter, as its training"
            " wrote it."
        ),
        "teacher": [
            "Ask which of the two curves says more about the speed-up. The loss falls also where"
            " the improvement lies behind the first rejection, which gains nothing; a wrong first"
            " token ends the whole round. What counts in the end are tokens per round: they were"
            " measured after the training alone, and stand in the drafter's README.md.",
            "“python -m specdemo train” does this on a laptop; docs/training.md says how.",
        ],
        "trace": "block",
        "moment": {"round": "best", "stage": "draft"},
        "tab": "denoise",
        "points": ["experiment"],
        "experiment": "training",
        "ask": {
            "question": "The target says “colour”, good style says “color”. Which should the"
            " drafter"
            " learn?",
            "options": [
                {"text": "colour", "why": "The target decides; what it would not write is lost."},
                {
                    "text": "color",
                    "why": "The target would reject it, and with it all that follows in the draft.",
                },
                {
                    "text": "Both, half of the time each",
                    "why": "Then half of the drafts end here, although the target is sure.",
                },
            ],
            "answer": 0,
        },
    },
    {
        "id": "steps",
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
        "points": ["experiment", "speedup", "chart-cost"],
        "experiment": "sweep",
        "sweep": "denoising-steps",
        "bench": "specdiff",
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
        "id": "gamma",
        "title": "One setting: how long a draft?",
        "text": [
            "γ is how many tokens are drafted. A longer draft can keep more, but the chance that"
            " its end is still right falls with every position, and every row of the pass that"
            " verifies it costs time.",
            "So tokens per round rise with γ and level off, while the speed-up has its best γ where"
            " another row no longer pays.",
        ],
        "look": "both curves: where does each of them stop rising?",
        "teacher": [
            "“python -m specdemo sweep block --vary gamma=2..15 --out runs/gamma” draws these"
            " curves"
            " on your own machine."
        ],
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["experiment"],
        "experiment": "sweep",
        "sweep": "gamma",
        "bench": "block",
        "ask": {
            "question": "The target accepts on average two tokens of a draft. Does a γ of 15 pay?",
            "options": [
                {
                    "text": "Yes, more drafted is more kept",
                    "why": "Only up to the first rejection, which mostly comes long before the"
                    " 15th.",
                },
                {
                    "text": "Hardly: most rows are verified for nothing",
                    "why": "Rows behind the first rejection cost time and are dropped.",
                },
                {
                    "text": "No, long drafts are accepted less at their beginning",
                    "why": "The beginning is as good as that of a short draft; it is the end that"
                    " is"
                    " seldom reached.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "when",
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
        "id": "batch",
        "title": "Batches: why servers care",
        "text": [
            "A server decodes for many users in one pass: one row a user. The weights are read once"
            " for all of them, so the pass is nearly as fast as for one user, and the arithmetic"
            " units are busy.",
            "Drafts multiply the rows: a tree of 12 for each of 8 users is 96 rows. Where rows"
            " are no"
            " longer free, a rejected row is time taken from somebody else. From some number of"
            " users on plain decoding is faster.",
        ],
        "look": "the slider: how many users until drafting no longer pays on this machine?",
        "teacher": [
            "On a large GPU the point lies at far more users than on this CPU, as a pass has to be"
            " some hundred rows wide before arithmetic, not memory, takes the time.",
            "Good servers draft less as the batch grows. “python -m specdemo load” measures it on a"
            " real one.",
        ],
        "trace": "best",
        "moment": {"at": "end"},
        "points": ["experiment"],
        "experiment": "batch",
        "ask": {
            "question": "A server is full, its arithmetic units are busy. What do drafts do there?",
            "options": [
                {
                    "text": "They help as much as for one user",
                    "why": "For one user rows are nearly free, as the weights are read anyway. In a"
                    " full batch every row costs its own time.",
                },
                {
                    "text": "They help less, or hurt",
                    "why": "Rejected rows are work that other users wait for.",
                },
                {
                    "text": "They change the text",
                    "why": "Never: the target still decides every token, at any batch size.",
                },
            ],
            "answer": 1,
        },
    },
    {
        "id": "yours",
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
