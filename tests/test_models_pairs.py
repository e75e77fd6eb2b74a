"""models.yaml: every mistake gets one sentence that helps."""

import argparse
import json

import pytest

from specdemo.commands.options import add_pair, pair_of
from specdemo.errors import UserError
from specdemo.models.own_pair import with_drafter
from specdemo.models.pairs import DEFAULT, get_pair, load_pairs
from specdemo.models.status import pair_status

GOOD = """
pairs:
  a:
    title: A
    license: MIT
    size: small
    target: {path: weights}
    drafters: {block: drafter, ar: {hub: owner/name}}
    dtypes: [fp32]
    thinking: false
"""


def write(tmp_path, text):
    (tmp_path / "models.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "models.yaml"


def test_the_shipped_file():
    pairs = load_pairs()
    assert next(iter(pairs)) == "smollm2-135m" and len(pairs) >= 5
    pair = pairs["smollm2-135m"]
    assert [next(iter(s)) for s in pair.target] == ["wheel", "hub"] and pair.license.startswith(
        "Apache-2.0"
    )
    assert pairs["qwen3-8b"].thinking is False and "4bit" in pairs["qwen3-8b"].dtypes


def test_a_good_entry(tmp_path):
    pair = load_pairs(write(tmp_path, GOOD))["a"]
    assert pair.target == ({"path": str(tmp_path / "weights")},)
    assert pair.drafters == {
        "block": str(tmp_path / "drafter"),
        "ar": "hub:owner/name",
    } and pair.dtypes == ("fp32",)


def test_an_unknown_pair_names_the_nearest():
    with pytest.raises(UserError, match="no pair “smolm2-135”; did you mean “smollm2-135m”"):
        get_pair("smolm2-135")
    with pytest.raises(UserError, match="known are: smollm2-135m"):
        get_pair("zzz")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("title: A", "titel: A", "no setting “titel”; did you mean “title”"),
        ("    license: MIT\n", "", "“license” is missing"),
        ("title: A\n    license: MIT", "notes: x", "“title” and “license” are missing"),
        ("title: A", "title: A\n    notes: &n [*n]", "an alias of what it stands in"),
        ("{path: weights}", "[{wheel: x==1}]", "a wheel source needs"),
        ("{path: weights}", "[{url: x}]", "a target source is one of"),
        ("{path: weights}", "{hub: a/b, sha: c}", "a hub source has no “sha”"),
        ("block: drafter", "blok: drafter", "no drafter kind “blok”"),
        ("block: drafter", "block: 7", "must be a folder or"),
        ("[fp32]", "[fp31]", "not 'fp31'"),
        ("thinking: false", "thinking: maybe", "must be true or false"),
        ("pairs:", "pears:", "has no “pairs:”"),
        ("  a:\n", "  a: [\n", "not valid YAML"),
        ("title: A", "title: !!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
)
def test_mistakes(tmp_path, old, new, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        load_pairs(write(tmp_path, GOOD.replace(old, new, 1)))
    assert "models.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_pairs(tmp_path / "models.yaml")


def test_states_say_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    path = write(tmp_path, GOOD.replace(", ar: {hub: owner/name}", ""))
    state = pair_status(path)[0]
    assert (
        state["state"] == "not here"
        and state["missing"][0] == f"target, of which there is no folder {tmp_path / 'weights'}"
        and len(state["missing"]) == 2
        and state["target"] is None
        and state["drafters"] == {"block": False}
    )
    for folder in ("weights", "drafter"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    state = pair_status(path)[0]
    assert (
        state["state"] == "ready"
        and state["missing"] == []
        and state["target"] == str(tmp_path / "weights")
    )
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(tmp_path / "nothing"))
    assert "SPECDEMO_TARGET_DIR" in pair_status(path)[0]["missing"][0]


def test_the_only_pair_of_a_file_needs_no_name(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    add_pair(parser)
    monkeypatch.setenv("SPECDEMO_MODELS", str(write(tmp_path, GOOD)))
    (only,) = load_pairs()
    assert pair_of(parser.parse_args([])).id == get_pair().id == only != DEFAULT
    with pytest.raises(UserError, match=f"no pair “{DEFAULT}”; name one: {only}"):
        pair_of(parser.parse_args(["--pair", DEFAULT]))  # asked for by its name
    write(tmp_path, GOOD + GOOD.replace("\npairs:\n  a:", "  other:"))
    with pytest.raises(UserError, match=f"no pair “{DEFAULT}”; name one: {only}, other"):
        pair_of(parser.parse_args([]))


def test_a_file_of_ones_own_and_a_drafter_of_ones_own(tmp_path, monkeypatch):
    own = tmp_path / "mine.yaml"
    own.write_text(
        "pairs:\n  mine:\n    {title: Mine, license: none, size: small, target: {path: here},"
        " drafters: {block: a, vp: b, ar: c}}\n"
    )
    monkeypatch.setenv("SPECDEMO_MODELS", str(own))
    assert list(load_pairs()) == ["mine"]
    pair = get_pair("mine")
    for kind, model_type in (("block", "specdemo_block_drafter"), ("ar", "specdemo_ar_drafter")):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        drafters = with_drafter(pair, folder).drafters
        assert drafters == (
            {"ar": pair.drafters["ar"], "block": str(folder)}
            if kind == "block"
            else {**pair.drafters, "ar": str(folder)}
        )
    (folder / "config.json").write_text("[]")
    for wrong in (tmp_path / "none", folder):
        with pytest.raises(UserError, match="There is no drafter in"):
            with_drafter(pair, wrong)
    monkeypatch.setenv("SPECDEMO_MODELS", str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match="where SPECDEMO_MODELS says"):
        load_pairs()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("title: A", "title: 2025", "“title” must be text, not 2025; put it in quotes"),
        ("title: A", "title: ' '", "“title” must be text"),
        ("dtypes: [fp32]", "dtypes: bf16", "for instance \\[bf16\\], not 'bf16'"),
        ("dtypes: [fp32]", "dtypes: []", "dtypes is a list"),
        ("thinking: false", "blocked: 5", "“blocked” must be text, not 5"),
        ("thinking: false", "notes: [1, 2]", "“notes” must be text, not \\[1, 2\\]"),
        ("thinking: false", "5: 1", "no setting “5”"),
        ("  a:\n", "  ../x:\n", "'../x' cannot be a pair's id"),
        ("  a:\n", "  7:\n", "7 cannot be a pair's id; .* in quotes"),
        ("{path: weights}", "{path: 'C:\\models\\x'}", "on a Windows drive"),
        ("block: drafter", "block: 'D:\\d'", "on a Windows drive"),
        ("{path: weights}", "{path: ''}", "a target source is one of"),
        ("{path: weights}", "{hub: ../../etc}", "a target source is one of"),
        ("hub: owner/name", "hub: owner/name/more", "must be a folder or"),
        ("    size: small\n", "    size: small\n    size: large\n", "“size” is there twice"),
        ("pairs:\n", "pairs:\n  a: {title: B}\n", "“a” is there twice"),
        ("title: A", 'title: "\\ud800"', "is not text at character 1"),
        ("title: A", f"title: {'9' * 5000}", "not valid YAML"),
        ("pairs:\n", "pair: {}\npairs:\n", "'pair' is neither “pairs” nor “shapes”"),
        ("title: A", f"title: {'[' * 3000}", "not valid YAML"),
        (
            "{path: weights}",
            "{wheel: --index-url=x==1, sha256: a, file: b, file_sha256: c}",
            "a target source is one of",
        ),
    ],
)
def test_what_an_entry_may_hold(tmp_path, old, new, sentence):
    assert old in GOOD
    with pytest.raises(UserError, match=sentence):
        load_pairs(write(tmp_path, GOOD.replace(old, new)))


def test_aliases_that_make_a_small_file_a_huge_value_are_not_written_out(tmp_path):
    levels = "".join(f"  {i + 1}: &l{i + 1} [{', '.join([f'*l{i}'] * 10)}]\n" for i in range(15))
    text = f"shapes:\n  0: &l0 [x]\n{levels}" + GOOD.replace("title: A", "title: *l15")
    with pytest.raises(UserError, match="“title” must be text, not "):
        load_pairs(write(tmp_path, text))


def test_folded_texts_are_one_line(tmp_path):
    text = GOOD.replace("title: A", "title: >\n      A\n      long title\n")
    assert load_pairs(write(tmp_path, text))["a"].title == "A long title"
