"""A hub drafter's revision, and the commit that is kept where none is named."""

import json

import pytest

from specdemo.models import fetch
from specdemo.models.own_pair import chosen_pair
from specdemo.models.pairs import load_pairs

ENTRY = """
pairs:
  p:
    title: P
    license: none
    size: small
    target: {path: weights}
    drafters: {block: {hub: owner/name, revision: v1}, ar: {hub: owner/other}}
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Revisions that were asked of a hub whose newest commit changes with every look."""
    seen, commits = [], iter(("aaa", "bbb"))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))

    def snapshot(repo, revision=None, local_files_only=False, **_):
        seen.append((repo, revision))
        if local_files_only:
            raise OSError("not here")
        folder = tmp_path / (revision or next(commits))
        folder.mkdir(exist_ok=True)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    return seen


def test_what_was_fetched_without_a_revision_stays(asked, tmp_path):
    first = fetch.drafter_folder("hub:owner/other")
    assert fetch.drafter_folder("hub:owner/other") == first and first.name == "aaa"
    assert json.loads((tmp_path / fetch.PINS).read_text()) == {"owner/other": "aaa"}
    assert [revision for _, revision in asked] == [None, None, "aaa", "aaa"]


def test_a_revision_is_asked_for_and_not_pinned(asked, tmp_path):
    (tmp_path / "models.yaml").write_text(ENTRY)
    pair = load_pairs(tmp_path / "models.yaml")["p"]
    assert pair.drafters == {"block": "hub:owner/name@v1", "ar": "hub:owner/other"}
    assert fetch.drafter_folder(pair.drafters["block"]).name == "v1"
    assert asked == [("owner/name", "v1")] * 2 and not (tmp_path / fetch.PINS).exists()


def test_a_target_and_a_drafter_of_ones_own(asked, tmp_path, target_folder):
    pair = chosen_pair("smollm2-135m", str(target_folder), None)
    assert pair.target == ({"path": str(target_folder.resolve())},) and pair.drafters == {}
    (tmp_path / "aaa").mkdir()
    (tmp_path / "aaa" / "config.json").write_text('{"dflash_config": {}}')
    pair = chosen_pair("smollm2-135m", "owner/target", "owner/other")
    assert pair.target == ({"hub": "owner/target"},) and pair.id == "own-target"
    assert pair.drafters == {"block": "hub:owner/other"}
