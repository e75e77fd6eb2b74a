"""The lesson as data: its texts, the recording each step shows, the moment, and the parts of the
view it points at.

``trace`` names a file of ``assets/traces``; ``moment`` says where the playhead is (``round``: best,
broken, branching or a number; ``stage``: denoise, draft, verify; ``at``: end; ``play``: run it);
``points`` name ``data-part`` attributes.
"""

from __future__ import annotations

from typing import Any

STEPS: list[dict[str, Any]] = [
    {
        "title": "One token per pass",
        "text": [
            "A language model computes one token, appends it to its input, and computes the next."
            " Every token needs a full pass through all the weights of the model.",
            "The pass is slow because the weights must be read from memory, not because there is"
            " much to calculate. The arithmetic units are mostly idle.",
        ],
        "look": "the left lane. Each pass of the target yields exactly one token.",
        "teacher": (
            "Ask: if the pass mostly waits for weights, what does a pass over eight tokens cost?"
            " The answer is step 2."
        ),
        "trace": "block",
        "moment": {"play": True},
        "points": ["lane-ar"],
        "ask": {
            "question": (
                "A pass over one token takes 20 ms on a laptop. What does one pass over eight"
                " tokens take?"
            ),
            "options": ["about 160 ms", "about 25 ms", "about 20 seconds"],
            "answer": 1,
            "why": (
                "Nearly the same: the weights are read once for all eight. Speculative decoding"
                " uses this."
            ),
        },
    },
    {
        "title": "Draft, then verify",
        "text": [
            "A small drafter proposes several tokens. The large model, the target, verifies all of"
            " them in one pass and accepts those that it would have chosen itself.",
            "A round that accepts four drafted tokens yields five tokens for the cost of about one"
            " pass.",
        ],
        "look": "the right lane. A capsule is one round: all its tokens come from one target pass.",
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
        ],
        "look": (
            "a row is a denoising step, a column is a position. The shade is the drafter's"
            " confidence; hatched cells are still masks."
        ),
        "teacher": (
            "Compare with autoregressive drafting: there each drafted token needs a pass of the"
            " drafter, so long drafts are expensive. Here a long draft costs the same as a short"
            " one."
        ),
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
            "If every drafted token is accepted, the target's next token is added: the bonus.",
        ],
        "look": (
            "the shapes: underlined = accepted draft, dashed box with ▲ = correction, double line"
            " with + = bonus, struck through = rejected."
        ),
        "trace": "block",
        "moment": {"round": "broken", "stage": "verify"},
        "points": ["legend", "lane-spec"],
    },
    {
        "title": "Why it is lossless",
        "text": [
            "The target decides every token. A drafted token is accepted only if the target chooses"
            " the same token at that position, also when it samples: the random number of a"
            " position is drawn once and is the same in both lanes.",
            "So both lanes write the same text, token for token. The drafter changes the speed,"
            " never the text.",
        ],
        "look": (
            "the verdict. It compares both lanes token by token, and says where they differ if they"
            " do."
        ),
        "teacher": (
            "There are also rules that keep the target's distribution instead of the same sample"
            " (“ratio” in the settings). A good question for the class: how is that tested?"
        ),
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["verdict"],
        "ask": {
            "question": "What happens to the text if the drafter is very bad?",
            "options": ["It gets worse", "It stays the same, only slower", "It stops"],
            "answer": 1,
            "why": "Wrong drafts are rejected. A bad drafter costs time, not quality.",
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
            "After the first rejected token the rest of the draft is lost. The drafter's confidence"
            " c says how likely the draft ends after position i: r(i) = c₁·c₂…cᵢ·(1 − cᵢ₊₁).",
            "A second draft that starts at the likeliest of these positions costs little.",
        ],
        "look": "the bars above the tree, and ▼ where new branches were drafted.",
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
            "How large should the tree be? Another row pays as long as the tokens it is expected to"
            " add are worth more than its time on this machine.",
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
            "More denoising steps make better drafts, but each step costs a pass of the drafter."
            " Switch between the recordings: same prompt, same model, one setting changed."
        ],
        "look": "accepted drafts per round against the speed-up.",
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
            "The page shows it. A good method measures it too and returns to plain decoding until"
            " drafts pay again.",
        ],
        "look": "the speed-up chart: above the dashed line drafting pays, below it does not.",
        "teacher": (
            "Try prompts of different kinds on the Race tab: arithmetic and code are predictable,"
            " translation and stories are not."
        ),
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
