"""Drafters whose model is made for a measurement: by steps in its name (`bench.made`), or to fit an inflated target.

Data in: the line-up's rival, the target's name with its steps; data out: the rival's engine.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from outdraft.bench.fingerprint import digest_weights
from outdraft.bench.lineup import Rival
from outdraft.bench.made import ROUNDINGS, inflated, make_model, read_size
from outdraft.bench.shelf import Shelf
from outdraft.bench.trial import join
from outdraft.core.registry import find, make_options, override
from outdraft.engine.llm import LLM
from outdraft.engine.recipe import read_recipe
from outdraft.testing.inflate_head import inflate_head, is_head
from outdraft.weights.hub import resolve


def join_made(plain: LLM, rival: Rival, shelf: Shelf, target: str) -> LLM:
    """The rival's engine over `plain`; its record names the model as it was asked for, and what its weights are."""
    made = make_draft(rival, shelf, target)
    llm = join(plain, made)
    if _model_of(made) != _model_of(rival):
        told = llm.config["drafter"]
        told |= {"model": _model_of(rival), "weights": digest_weights(Path(told["model"]))}
    return llm


def make_draft(rival: Rival, shelf: Shelf, target: str) -> Rival:
    """The same rival with its `model`'s steps done, if there are any, for the target of this name.

    An inner drafter's model may have steps too. A head that belongs to one target (EAGLE, early exit) is inflated as
    the target was.
    """
    rival = replace(rival, options={key: _nested(value, shelf, target) for key, value in rival.options.items()})
    name = _model_of(rival)
    base, *steps = target.split("@")
    if "@" in name:
        made = make_model(name, shelf).path
    elif name and is_head(resolve(name)) and (sizes := [step for step in steps if step not in ROUNDINGS]):
        made = _inflated_head(resolve(name), resolve(base), sizes, shelf)
    else:
        return rival
    return replace(rival, options={**rival.options, "model": str(made)})


def _nested(value: Any, shelf: Shelf, target: str) -> Any:
    """An option that describes drafters (as `several`'s does), with the models of those made too."""
    if isinstance(value, list | tuple):
        return [_nested(one, shelf, target) for one in value]
    if not isinstance(value, dict) or "method" not in value:
        return value
    options = {key: one for key, one in value.items() if key != "method"}
    made = make_draft(Rival(name=value["method"], options=options), shelf, target)
    return {"method": made.name, **made.options}


def _model_of(rival: Rival) -> str:
    options = read_recipe(rival.name).drafter.options if rival.is_recipe else {}
    method = find("drafter", rival.drafter)
    return str(getattr(make_options(method, override(method, options, rival.options)), "model", ""))


def _inflated_head(head: Path, target: Path, sizes: list[str], shelf: Shelf) -> Path:
    for size in sizes:
        width, depth = read_size(size)
        make = partial(inflate_head, head, target, width=width, depth=depth)
        head = shelf.get(f"{head.name}-{size}", [digest_weights(head), digest_weights(target), size], make)
        target = inflated(target, size, shelf)
    return head
