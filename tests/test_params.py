"""Parameters of the methods: described, checked, and read under their old spellings."""

import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.drafters import METHODS
from specdemo.drafters.parts.params import parameter_fields, upgrade_params
from specdemo.errors import UserError


def test_every_parameter_is_described_with_a_default_that_it_accepts():
    for method in METHODS.values():
        for parameter in parameter_fields(method.params):
            assert parameter.help, (method.name, parameter.name)
            parsed = method.parse_params({parameter.name: parameter.default})
            assert getattr(parsed, parameter.name) == parameter.default
            if parameter.kind in ("int", "float"):
                assert parameter.low <= parameter.default <= parameter.high and parameter.step > 0
            elif parameter.kind == "choice":
                assert parameter.default in parameter.options


def test_kinds_limits_and_steps():
    found = {p.name: p for p in parameter_fields(METHODS["specdiff2"].params)}
    assert (found["gamma"].kind, found["gamma"].low, found["gamma"].high) == ("int", 1, 32)
    assert (found["temperature"].kind, found["temperature"].step) == ("float", 0.1)
    assert (found["argmax"].kind, found["argmax"].default) == ("bool", True)
    verify = next(p for p in parameter_fields(METHODS["d2sd"].params) if p.name == "verify")
    assert (verify.kind, verify.options) == ("choice", ("trie", "cascade"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("yes", True), ("1", True), ("False", False), ("no", False), ("0", False)],
)
def test_booleans_are_read_from_text(text, value):
    assert METHODS["best"].parse_params({"adaptive": text}).adaptive is value


def test_messages_name_what_is_allowed():
    for name, params, said in (
        (
            "block",
            {"gamma": 99},
            "gamma must be a whole number from 1 to 32 (32 is the deepest draft whose rows are"
            " exact), not 99.",
        ),
        ("diffuspec", {"tau": "x"}, "tau must be a number from 0.05 to 1, not 'x'."),
        ("best", {"adaptive": "maybe"}, "adaptive must be true or false, not 'maybe'."),
        ("d2sd", {"verify": "both"}, "verify must be one of trie, cascade, not 'both'."),
        ("ar", {"gamma": 1}, "There is no parameter “gamma” here; choose from: none."),
    ):
        with pytest.raises(UserError) as error:
            METHODS[name].parse_params(params)
        assert str(error.value) == said


@pytest.mark.parametrize("name", ["block", "tree", "d2sd", "best"])
def test_the_markov_head_under_its_old_name(name):
    assert METHODS[name].parse_params({"follow": "no"}).markov_head is False
    assert METHODS[name].parse_params({"follow": "yes"}).markov_head is True


def test_old_spellings_become_todays_in_the_same_order():
    old = {"gamma": 8, "copies": 3, "sleep": "yes", "follow": "no"}
    new = {"gamma": 8, "copies": 3, "adaptive": True, "markov_head": False}
    assert upgrade_params("best", old) == new and list(upgrade_params("best", old)) == list(new)
    assert upgrade_params("best", new) == new and old["sleep"] == "yes"
    assert upgrade_params("specdiff2", {"argmax": "no"}) == {"argmax": False}
    assert upgrade_params("lookup", {"follow": "yes"}) == {"follow": "yes"}  # never had one
    for method, params in (
        ("lookup", {"follow": "yes"}),
        ("best", {"follow": "sometimes"}),
        ("best", {"sleep": "yes", "adaptive": True}),
    ):
        with pytest.raises(UserError):
            METHODS[method].parse_params(params)


def test_parameters_are_read_without_torch():
    code = "import sys, specdemo.drafters.parts.params; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_shows_booleans_as_checkboxes_and_reads_old_links():
    import gradio as gr

    from specdemo.ui.controls import Limits, MethodControls, from_link

    with gr.Blocks():
        controls = MethodControls(METHODS, "best")
    kinds = {(method, name): type(part) for method, name, part in controls.parts}
    assert kinds["best", "adaptive"] is gr.Checkbox and kinds["d2sd", "verify"] is gr.Dropdown
    assert kinds["best", "gamma"] is gr.Slider
    link, wrong = from_link(
        {"method": "best", "params": '{"sleep": "no", "follow": "yes", "gamma": 99}'},
        METHODS,
        [],
        Limits(),
    )
    assert link["params"] == {"adaptive": False, "markov_head": True, "gamma": 99}
    assert wrong == ["gamma"]
    filled = dict(
        zip(
            [name for method, name, _ in controls.parts if method == "best"],
            [
                update
                for (method, _, _), update in zip(
                    controls.parts, controls.fill("best", link["params"]), strict=True
                )
                if method == "best"
            ],
            strict=True,
        )
    )
    assert filled["adaptive"]["value"] is False and "value" not in filled["gamma"]


def documented() -> str:
    """The section “Parameters” of docs/methods.md, as the methods declare them."""
    lines = ["| method | parameter | values | default | meaning |", "|---|---|---|---|---|"]
    for method in METHODS.values():
        for p in parameter_fields(method.params):
            default = str(p.default).lower() if p.kind == "bool" else p.default
            allowed = p.allowed.removeprefix("a ").removeprefix("one of ")
            lines.append(f"| `{method.name}` | `{p.name}` | {allowed} | {default} | {p.help} |")
    return "\n".join(lines)


def test_the_documentation_lists_every_parameter():
    text = (Path(__file__).parents[1] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert documented() in text
