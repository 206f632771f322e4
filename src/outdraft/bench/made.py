"""Models made from another for a measurement, by name: "zoo:draft@8x20" is inflated, "zoo:draft@8x20@int8" rounded too.

    @WIDTHxDEPTH   the same distribution at the cost of a bigger model (`models.inflate`)
    @int8, @int4   weights as the native kernels read them: one scale an output, or one for 32 inputs; the head stays
    @int4-g128     4 bits with one scale for 128 inputs

An inflated model and the small one that it was made from write the same text, so one drafts for the other with every
token accepted. Data in: a name; data out: a model directory (made once, kept on a `Shelf`).
"""

import json
import re
import shutil
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from outdraft.bench.shelf import Shelf
from outdraft.engine.naming.roles import FILE as COMPANIONS
from outdraft.engine.naming.roles import read_companions
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.inflate import inflate
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve

ROUNDINGS = {
    "int8": QuantConfig(bits=8, group_size=0),
    "int4": QuantConfig(bits=4, group_size=32),
    "int4-g128": QuantConfig(bits=4, group_size=128),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """`path`: the model; `original`: the same before its weights were rounded, which is what peers begin with."""

    path: Path
    original: Path


def make_model(name: str, shelf: Shelf) -> Made:
    """The model of this name, with its steps done. Raises `ConfigError` for a step that is not known."""
    base, *steps = name.split("@")
    path = original = resolve(base)
    for step in steps:
        if step in ROUNDINGS:
            path = _rounded(path, step, shelf)
        elif path != original:
            raise ConfigError(f"{name}: @{step} comes after the rounding; write it before")
        else:
            path = original = inflated(path, step, shelf)
    return Made(path=path, original=original)


def read_size(text: str) -> tuple[int, int]:
    """Read "4x12" as a width factor of 4 and 12 layers."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None:
        raise ConfigError(
            f"{text!r} is no size{near_miss(text, list(ROUNDINGS))}: write WIDTHxDEPTH, for example 4x12 "
            f"(4 times the width, 12 layers), or a rounding ({', '.join(ROUNDINGS)})"
        )
    return int(found[1]), int(found[2])


def inflated(source: Path, size: str, shelf: Shelf) -> Path:
    """The same distribution at another size: "4x12"."""
    width, depth = read_size(size)

    def write(new: Path) -> None:
        inflate(source, new, width=width, depth=depth)
        _write_companions(source, new, without=("head",))

    return shelf.get(f"{source.name}-{size}", [digest_weights(source), size, *_companions(source)], write)


def _rounded(source: Path, rounding: str, shelf: Shelf) -> Path:
    def write(new: Path) -> None:
        save_model(quantize_decoder(load_model(source), ROUNDINGS[rounding]), new)
        for path in source.iterdir():
            if path.is_file() and not path.name.startswith(("model", "config.json", COMPANIONS)):
                shutil.copyfile(path, new / path.name)
        _write_companions(source, new)

    return shelf.get(f"{source.name}-{rounding}", [digest_weights(source), rounding, *_companions(source)], write)


def _companions(source: Path, *, without: Seq[str] = ()) -> list[dict[str, dict[str, str]]]:
    """What `companions.json` of `source` names, by paths that hold from anywhere; empty if it has no such file."""
    if not (source / COMPANIONS).is_file():
        return []
    named = read_companions(source).items()
    return [{role: dict(sorted(places.items())) for role, places in sorted(named) if role not in without}]


def _write_companions(source: Path, new: Path, *, without: Seq[str] = ()) -> None:
    """The same drafts for the made model. A head of a smaller target reads states of another width: `without` it."""
    for found in _companions(source, without=without):
        (new / COMPANIONS).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
