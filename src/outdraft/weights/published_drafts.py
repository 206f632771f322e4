"""Which public checkpoints draft for a target: the table `published_drafts.toml` beside this file."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

_STORED = re.compile(r"[-._](gguf|i?q\d|ud-|f16|bf16|fp8|int[48]|awq|gptq|bnb|mlx|nvfp4|mxfp4).*$")


def find_published(target: str) -> list[str]:
    """Hub name and drafter of each; the last part of the target's name counts, in whatever form its weights are."""
    last = target.partition(":")[0].rstrip("/").rpartition("/")[2].lower()
    found = published().get(_STORED.sub("", last).removeprefix("meta-"), {})
    return [f"{draft} ({drafter})" for drafter, drafts in found.items() for draft in drafts]


def published() -> Mapping[str, Mapping[str, list[str]]]:
    """Target -> drafter -> hub names."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
