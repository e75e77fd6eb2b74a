"""The lesson as data: words, the recording each step stands on, the moment, and the parts of the
view it points at.

``trace`` names a file of ``assets/traces``; ``moment`` says where the playhead stands (``round``:
best, worst, broken, bonus, branching or a number; ``stage``: denoise, draft, verify; ``at``: end;
``play``: run it); ``points`` name ``data-part`` attributes.
"""

from __future__ import annotations

from typing import Any

STEPS: list[dict[str, Any]] = [
    {
        "title": "One word at a time",
        "text": [
            (
                "A language model writes one token, reads it back, writes the next. Every token"
                " needs a full pass through all the weights of the model."
            ),
            (
                "The pass is slow because the weights must be fetched from memory, not because"
                " there is much to calculate. The arithmetic units mostly wait."
            ),
        ],
        "look": "the left lane. Each step of its clock buys exactly one token.",
        "teacher": (
            "Ask: if the machine mostly waits for weights, what would eight tokens in one pass"
            " cost? The answer is step 2."
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
                "Nearly the same: the weights are fetched once for all eight. This slack is what"
                " speculative decoding spends."
            ),
        },
    },
    {
        "title": "Draft, then verify",
        "text": [
            (
                "A small drafter guesses several tokens ahead. The big model, the target, reads all"
                " guesses in one pass and keeps those it would have written itself."
            ),
            "A round that keeps four drafts writes five tokens for the price of about one pass.",
        ],
        "look": (
            "the right lane. A capsule is one round: everything in it came from one pass of the"
            " target."
        ),
        "trace": "block",
        "moment": {"play": True},
        "points": ["lane-spec"],
    },
    {
        "title": "Masks instead of one by one",
        "text": [
            (
                "The drafter here is a diffusion model. It does not guess token after token: it"
                " gets a row of masks and fills in all of them at the same time."
            ),
            (
                "It can also take several denoising steps: fill in what it is sure of, look again,"
                " fill in the rest."
            ),
        ],
        "look": (
            "a row is a step, a column is a position. Shade shows how sure the drafter is; hatched"
            " cells are still masks."
        ),
        "teacher": (
            "Compare with autoregressive drafting: there the drafter needs one pass for each guess,"
            " so long drafts are expensive. Here a long draft costs the same as a short one."
        ),
        "trace": "specdiff",
        "moment": {"round": "best", "stage": "draft"},
        "tab": "denoise",
        "points": ["round"],
    },
    {
        "title": "How many will survive?",
        "text": [
            "The draft is ready, the target has not looked at it yet. Read the text so far and the"
            " draft, then guess."
        ],
        "look": "the grey dotted words at the end of the right lane: drafted, not checked.",
        "trace": "block",
        "moment": {"round": "broken", "stage": "draft"},
        "tab": "denoise",
        "points": ["lane-spec", "round"],
        "ask": {"kind": "accepted"},
    },
    {
        "title": "Corrected, or a bonus",
        "text": [
            (
                "Where a draft is wrong, the target's own token takes its place: the pass has"
                " computed it anyway. So a round always writes at least one token, like plain"
                " decoding."
            ),
            "If every draft was right, the target's next token comes on top: the bonus.",
        ],
        "look": (
            "the shapes: underlined = accepted draft, dashed box with ▲ = corrected, double line"
            " with + = bonus, struck through = rejected."
        ),
        "trace": "block",
        "moment": {"round": "broken", "stage": "verify"},
        "points": ["legend", "lane-spec"],
    },
    {
        "title": "Why nothing is lost",
        "text": [
            (
                "The target decides every token. A draft is kept only if the target, at that place,"
                " would have chosen the same token, also when it samples: its random draw is made once"
                " for each position and both lanes use the same throw."
            ),
            (
                "So both lanes write the same text, token for token. The drafter changes the speed,"
                " never the words."
            ),
        ],
        "look": (
            "the verdict. It compares both lanes id for id, and says where they differ if they do."
        ),
        "teacher": (
            "There are also rules that keep the probability law instead of the very sample (“ratio”"
            " in the settings). Good question for the class: how would you test that?"
        ),
        "trace": "block",
        "moment": {"at": "end"},
        "points": ["verdict"],
        "ask": {
            "question": "What happens to the text if the drafter is terrible?",
            "options": ["It gets worse", "It stays the same, only slower", "It stops"],
            "answer": 1,
            "why": "Wrong drafts are thrown away. The price of a bad drafter is time.",
        },
    },
    {
        "title": "The lattice",
        "text": [
            (
                "A diffusion drafter answers all positions at once, so it offers several candidates"
                " everywhere, but they need not fit together: the best word here and the best word"
                " there may come from two different sentences."
            ),
            "A search through this lattice looks for a path whose words follow from one another.",
        ],
        "look": (
            "columns are positions, rows are candidates. The thick line is the path that was sent"
            " to the target, ★ is the target's own choice."
        ),
        "trace": "diffuspec",
        "moment": {"round": "best", "stage": "verify"},
        "tab": "lattice",
        "points": ["round"],
    },
    {
        "title": "Where will it break?",
        "text": [
            (
                "One wrong token spoils everything behind it. From the drafter's own confidence one"
                " can guess where the first wrong token will be: r(i) = c₁·c₂…cᵢ·(1 − cᵢ₊₁)."
            ),
            "A second draft that starts again at the likeliest break is a cheap insurance.",
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
            (
                "The target can check a whole tree of guesses in one pass: each branch sees only"
                " its own beginning. Second choices are insurance as well, and they cost only a few"
                " more rows."
            ),
            (
                "How big should the tree be? As long as another row brings more expected tokens"
                " than it costs time on this machine."
            ),
        ],
        "look": (
            "the thick path: the branch that survived. Was it the drafter's first choice"
            " everywhere?"
        ),
        "trace": "tree",
        "moment": {"round": "branching", "stage": "verify"},
        "tab": "tree",
        "points": ["round"],
    },
    {
        "title": "One knob: denoising steps",
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
        "title": "When it does not help",
        "text": [
            (
                "Drafting and checking cost time in every round. If few drafts survive, because the"
                " text is surprising or the drafter knows little about it, the right lane falls"
                " behind."
            ),
            (
                "The page says so. A good method notices it too and goes back to plain decoding"
                " until drafts pay again."
            ),
        ],
        "look": "the speed-up chart: above the dashed line drafting pays, below it does not.",
        "teacher": (
            "Try prompts of different kinds on the Race tab: sums and code are predictable,"
            " translation and free stories are not."
        ),
        "trace": "hard",
        "moment": {"at": "end"},
        "points": ["chart-speedup", "speedup"],
        "cost": True,
    },
    {
        "title": "Now you",
        "text": [
            (
                "Open the Race tab, type a prompt, choose a method and press Run. Everything you"
                " saw here works there: space plays, arrows step, Home and End jump, a click on a"
                " word opens its round."
            ),
            (
                "Download the trace or the web page to keep a run; the share link lets somebody"
                " else run the same one."
            ),
        ],
        "look": (
            "the fastest method on the same kind of prompt, recorded on the machine named under the"
            " prompt."
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
