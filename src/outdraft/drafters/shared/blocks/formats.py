"""Block networks that others serve: speculators' layout, which is ours too, z-lab's flat one, and llama.cpp's file.

    speculators   config.json names its target, so that `vllm serve DIR` finds it
    z-lab         a flat Qwen3's config.json; DeepSpec's and ModelOpt's DSpark are read as it, too
    gguf          a file, not a directory, and only read: llama.cpp's converter writes it from either (`gguf.py`)

The tensors are the same in all (`keys.py` says how the keys differ).
"""

import json
from dataclasses import replace
from pathlib import Path

import torch

from outdraft.core.head_format import HeadFormat, served_here
from outdraft.drafters.shared.blocks.gguf import open_blocks
from outdraft.drafters.shared.blocks.kind import BlockKind, Own
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.blocks.written import written_flat
from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.foreign_heads import stored_dtype
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort, facts_of
from outdraft.options.read_file import load_json

Formats = tuple[HeadFormat[BlockNet, Decoder | TargetPort, Decoder], ...]


def block_formats(kind: BlockKind[Own]) -> Formats:
    """Both layouts of a kind, or ours alone."""
    flat = kind.flat_architecture

    def read(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None) -> BlockNet:
        return kind.load(directory, facts_of(target), dtype or stored_dtype(open_blocks(directory, kind.keys)[1]))

    def write(net: BlockNet, target: Decoder, target_name: str, directory: Path) -> None:
        kind.save(net, directory)
        path = directory / "config.json"
        told = load_json(path)
        architecture = ARCHITECTURES[target.config.architecture].class_name
        told["speculators_config"]["verifier"] = {"name_or_path": target_name, "architectures": [architecture]}
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    def write_flat(net: BlockNet, target: Decoder, target_name: str, directory: Path) -> None:
        assert flat is not None
        told = written_flat(net.config, kind.write(net.own), flat, target.config.num_layers, net.dtype)
        kind.save(net, directory)
        (directory / "config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    ours = HeadFormat(
        name="speculators",
        summary=f"speculators' {kind.name}, which is ours too",
        matches=kind.lies_in,
        read=read,
        write=write,
        served={"outdraft": served_here(kind.name), **kind.served},
    )
    if flat is None:
        return (replace(ours, name="outdraft", summary="ours, in speculators' layout"),)
    return (
        ours,
        HeadFormat(
            name="z-lab",
            summary=f"{kind.name} with a flat config.json",
            matches=lambda place: not place.is_file() and kind.lies_flat_in(place),
            read=read,
            write=write_flat,
            served=kind.served_flat,
        ),
        HeadFormat(
            name="gguf",
            summary=f"{kind.name} in llama.cpp's GGUF file",
            matches=lambda place: place.is_file() and kind.lies_flat_in(place),
            read=read,
            write=None,
        ),
    )
