"""``specdemo export-drafter``: a drafter in the form that other engines load."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import check_output
from ..models.pairs import WHERE_NONE, get_pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``export-drafter``."""
    parser.add_argument(
        "folder", type=Path, help="a drafter folder, as “train --shape dflash” leaves it"
    )
    parser.add_argument(
        "--to",
        choices=("hf", "gguf"),
        required=True,
        help="hf: DFlash's published folder (transformers, vLLM, SGLang); gguf: llama.cpp",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder (hf) or file (gguf) to write"
    )
    parser.add_argument(
        "--target-gguf",
        type=Path,
        help="gguf: the target that llama.cpp runs, whose vocabulary is copied (default: that of"
        " --pair)",
    )
    parser.add_argument(
        "--pair",
        help=f"gguf: the pair whose target is meant ({WHERE_NONE})",
    )


def export_drafter_main(args: argparse.Namespace) -> int:
    """Check everything, then write; never over the drafter itself or its target."""
    from ..models.drafters import read_drafter

    out = args.out
    if out.exists() and out.resolve() == args.folder.resolve():
        raise UserError(f"{out} is the drafter itself; name another place with --out.")
    net: Any = read_drafter(args.folder)
    if args.to == "hf":
        _export_folder(net, args.folder, out)
    else:
        _export_gguf(net, args)
    return 0


def _export_folder(net: Any, folder: Path, out: Path) -> None:
    from ..models.dflash_layout import check_dflash
    from ..models.drafter_files import save_drafter

    check_dflash(net, str(folder))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already; name a new folder with --out.")
    card = folder / "README.md"
    save_drafter(net, out, card.read_text(encoding="utf-8") if card.is_file() else "# A drafter")
    print(f"{out}: DFlash's published layout, in bf16.")


def _export_gguf(net: Any, args: argparse.Namespace) -> None:
    from ..bench.peers.gguf_files import original
    from ..models.dflash_gguf import check_loadable, write_dflash_gguf

    check_loadable(net, str(args.folder))
    check_output(args.out, "The drafter")
    target = args.target_gguf
    if target is None:
        pair = get_pair(args.pair)
        try:
            target = original(pair, lambda *_: None)
        except UserError as error:
            raise UserError(f"{error} Give the target's file with --target-gguf.") from None
    if args.out.exists() and args.out.samefile(target):
        raise UserError(f"{args.out} is the target itself; name another file with --out.")
    write_dflash_gguf(net, target, args.out, str(args.folder))
    words = [
        *("llama-server", "-m", str(target), "-md", str(args.out)),
        *("--spec-type", "draft-dflash", "--spec-draft-n-max", str(net.most_masks)),
    ]
    print(f"{args.out}: beside its target, llama.cpp drafts with it:\n{shlex.join(words)}")
