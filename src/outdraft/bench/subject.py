"""The model on the bench: as it is, or made from another one (`bench.made`): inflated, rounded.

Data in: a model's name and how to load it; data out: a plain engine, and what identifies the model in a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.core.errors import OutdraftError
from outdraft.engine.assembly.variant import runner_of as runner_behind
from outdraft.engine.llm import LLM
from outdraft.engine.runner import Runner
from outdraft.models.network import Network
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`told`: name, parameters, weights (a fingerprint), inflate. `original`: its weights before any rounding."""

    name: str  # with the steps that made it
    plain: LLM
    told: dict[str, Any]
    original: Path


def load_subject(model: str, shelf: Shelf, *, inflated: str | None = None, **settings: Any) -> Subject:
    """Load it. `inflated`: "4x12" is width times 4, 12 layers; `settings` are `LLM`'s."""
    base, at, steps = model.partition("@")
    told: dict[str, Any] = {"name": model if model.startswith("zoo:") else resolve(base).name + at + steps}
    name = model if inflated is None else "@".join([base, inflated, *steps.split("@")] if steps else [base, inflated])
    made = make_model(name, shelf)
    told |= {"inflate": inflated, "weights": digest_weights(made.path)}
    plain = LLM(made.path, drafter="none", **settings)
    told["parameters"] = decoder_of(plain).num_parameters
    return Subject(name=name, plain=plain, told=told, original=made.original)


def runner_of(llm: LLM) -> Runner:
    """The target behind an engine."""
    return runner_behind(llm.engine.parts)


def decoder_of(llm: LLM) -> Network:
    """The network behind an engine."""
    return runner_of(llm).decoder


def with_weights(config: Mapping[str, Any]) -> dict[str, Any]:
    """A drafter's resolved options, with a fingerprint of the weights that they name."""
    told = dict(config)
    if "weights" in told:
        return told
    try:
        told["weights"] = digest_weights(resolve(told["model"])) if told.get("model") else None
    except OutdraftError:
        told["weights"] = None
    return told
