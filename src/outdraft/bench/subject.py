"""The model on the bench: as it is, or inflated to a realistic size with the same law (`testing.inflate`).

Data in: a model's name and how to load it; data out: a plain engine, and what identifies the model in a record.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from outdraft.bench.fingerprint import digest_weights
from outdraft.core.errors import ConfigError, OutdraftError
from outdraft.engine.llm import LLM
from outdraft.engine.runner import Runner
from outdraft.models.network import Network
from outdraft.testing.inflate import inflate
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`told`: name, parameters, weights (a fingerprint), inflate."""

    plain: LLM
    told: dict[str, Any]


def load_subject(model: str, *, inflated: str | None = None, **settings: Any) -> Subject:
    """Load it. `inflated`: "4x12" is width times 4, 12 layers; `settings` are `LLM`'s."""
    directory = resolve(model)
    told: dict[str, Any] = {"name": model if model.startswith("zoo:") else directory.name, "inflate": inflated}
    told["weights"] = digest_weights(directory)
    if inflated is None:
        plain = LLM(directory, **settings)
    else:
        width, depth = read_size(inflated)
        with TemporaryDirectory() as above:
            grown = Path(above) / f"{directory.name}-{inflated}"
            inflate(directory, grown, width=width, depth=depth)
            plain = LLM(grown, **settings)
    return Subject(plain=plain, told=told | {"parameters": decoder_of(plain).num_parameters})


def read_size(text: str) -> tuple[int, int]:
    """ "4x12" -> (4, 12)."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None:
        raise ConfigError(f"inflate={text!r}: write WIDTHxDEPTH, for example 4x12 (4 times the width, 12 layers)")
    return int(found[1]), int(found[2])


def runner_of(llm: LLM) -> Runner:
    """The target behind an engine."""
    target = llm.engine.parts.target
    assert isinstance(target, Runner)
    return target


def decoder_of(llm: LLM) -> Network:
    """The network behind an engine."""
    return runner_of(llm).decoder


def with_weights(config: Mapping[str, Any]) -> dict[str, Any]:
    """A drafter's resolved options, with a fingerprint of the weights that they name."""
    told = dict(config)
    try:
        told["weights"] = digest_weights(resolve(told["model"])) if told.get("model") else None
    except OutdraftError:
        told["weights"] = None
    return told
