"""Drafters whose model is made for a measurement: by steps in its name (`bench.made`), or to fit an inflated target.

Data in: the line-up's rival, the target's name with its steps; data out: the rival's engine.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

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
    if made is not rival:
        told = llm.config["drafter"]
        told |= {"model": _model_of(rival), "weights": digest_weights(Path(told["model"]))}
    return llm


def make_draft(rival: Rival, shelf: Shelf, target: str) -> Rival:
    """The same rival with its `model`'s steps done, if there are any, for the target of this name.

    An inner drafter's model may have steps too. A head that belongs to one target (EAGLE, early exit) is inflated as
    the target was.
    """
    if isinstance(inner := rival.options.get("drafter"), Mapping) and "@" in str(inner.get("model", "")):
        inner = {**inner, "model": str(make_model(inner["model"], shelf).path)}
        return replace(rival, options={**rival.options, "drafter": inner})
    name = _model_of(rival)
    base, *steps = target.split("@")
    if "@" in name:
        made = make_model(name, shelf).path
    elif name and is_head(resolve(name)) and (sizes := [step for step in steps if step not in ROUNDINGS]):
        made = _inflated_head(resolve(name), resolve(base), sizes, shelf)
    else:
        return rival
    return replace(rival, options={**rival.options, "model": str(made)})


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
