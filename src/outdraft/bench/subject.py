"""The model on the bench: as it is, or made from another one (`bench.made`): inflated, rounded.

Data in: a model's name and how to load it; data out: a plain engine, and what identifies the model in a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.bench.made import make_model
from outdraft.bench.shelf import Shelf
from outdraft.engine.assembly.variant import runner_of as runner_behind
from outdraft.engine.llm import LLM
from outdraft.engine.runner import Runner
from outdraft.models.networks.network import Network
from outdraft.options.errors import OutdraftError
from outdraft.options.paths import user_path
from outdraft.weights.digest import digest_weights, weight_files
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTarget:
    """`told`: name, parameters, weights (a fingerprint), inflate. `original`: its weights before any rounding."""

    name: str  # with the steps that made it
    plain: LLM
    told: dict[str, Any]
    original: Path


def load_subject(model: str, shelf: Shelf, *, inflated: str | None = None, **settings: Any) -> BenchTarget:
    """Load it. `inflated`: "4x12" is width times 4, 12 layers; `settings` are `LLM`'s."""
    base, at, steps = model.partition("@")
    told: dict[str, Any] = {"name": model if model.startswith("zoo:") else resolve(base).name + at + steps}
    name = model if inflated is None else "@".join([base, inflated, *steps.split("@")] if steps else [base, inflated])
    made = make_model(name, shelf)
    told |= {"inflate": inflated, "weights": digest_weights(made.path)}
    plain = LLM(made.path, drafter="none", **settings)
    told["parameters"] = decoder_of(plain).num_parameters
    return BenchTarget(name=name, plain=plain, told=told, original=made.original)


def runner_of(llm: LLM) -> Runner:
    """The target behind an engine."""
    return runner_behind(llm.engine.parts)


def decoder_of(llm: LLM) -> Network:
    """The network behind an engine."""
    return runner_of(llm).decoder


def fingerprints(options: Any, name: str = "") -> dict[str, str]:
    """Of the models and files that options name, at any depth, by name."""
    inner: list[tuple[str, Any]] = []
    if isinstance(options, Mapping):
        inner = list(options.items())
    elif isinstance(options, list | tuple):
        inner = [(name, one) for one in options]
    found = {place: told for key, one in inner for place, told in fingerprints(one, key).items()}
    if isinstance(options, str) and (place := _place(options, is_model=name == "model")) is not None:
        found[options] = digest_weights(place)
    return found


def _place(text: str, *, is_model: bool) -> Path | None:
    """Where a model or a file is, if the text names one."""
    try:
        if is_model or text.startswith("zoo:"):
            return resolve(text)
        path = user_path(text)
    except OutdraftError:
        return None
    return path if path.is_file() or any(weight_files(path)) else None
