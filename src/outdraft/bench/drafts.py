"""Drafters whose model is made for a measurement: by steps in its name (`bench.made`), or to fit an inflated target.

Data in: the line-up's rival, the target's name with its steps; data out: the rival's engine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from outdraft import zoo
from outdraft.bench.lineup import DEFAULT, Rival
from outdraft.bench.made import ROUNDINGS, inflated, make_model, read_size
from outdraft.bench.shelf import Shelf
from outdraft.bench.trial import join
from outdraft.core.learner import LearnMethod
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.registry import find, make_options, override
from outdraft.engine.llm import LLM
from outdraft.engine.naming.recipe import fill_named, read_recipe
from outdraft.engine.naming.roles import Companions, choose, read_companions, slots_of
from outdraft.models.files.load import load_model
from outdraft.options.base import NESTED
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve


def join_made(plain: LLM, rival: Rival, shelf: Shelf, target: str) -> LLM:
    """The rival's engine over `plain`; its record names the model as it was asked for, and what its weights are."""
    maker = Maker(shelf=shelf, target=target)
    llm = join(plain, maker.make(rival))
    told = llm.config["drafter"]
    if (asked := maker.names.get(str(told.get("model")))) is not None:
        told |= {"model": asked, "weights": digest_weights(Path(told["model"]))}
    return llm


def make_draft(rival: Rival, shelf: Shelf, target: str) -> Rival:
    """The same rival with its models made, for the target of this name."""
    return Maker(shelf=shelf, target=target).make(rival)


@dataclass(slots=True, kw_only=True)
class Maker:
    """Makes what a rival's models ask for. An inner drafter's model may have steps too; a head that belongs to one
    target (EAGLE, early exit) is inflated as the target was."""

    shelf: Shelf
    target: str  # its name, with its steps
    names: dict[str, str] = field(default_factory=dict)  # what was made -> the name that asked for it

    def make(self, rival: Rival) -> Rival:
        """The same rival, with its models made."""
        if rival.name == DEFAULT:
            if "@" not in self.target:
                return rival
            rival = replace(rival, name="auto", is_recipe=True)  # which may be given what was made
        options = {key: self._nested(value) for key, value in rival.options.items()}
        if rival.is_recipe:
            if "model" in options:
                options["model"] = self._made(str(options["model"]))
            return replace(rival, options=options, roles=self._roles(rival))
        name = _model_of(rival.drafter, fill_named(rival.drafter, options, {}, lambda: _short(self._beside())))
        made = self._made(name) if name else name
        changes = made != _model_of(rival.drafter, options)
        return replace(rival, options={**options, "model": made} if changes else options)

    def _beside(self) -> Companions:
        """What lies beside the model that an inflated target was made from; for any other the engine asks itself."""
        base, *steps = self.target.split("@")
        return read_companions(resolve(base)) if steps else {}

    def _roles(self, rival: Rival) -> dict[str, str]:
        """What fills a recipe's roles: an inflated target has the companions of the one that it was made from."""
        drafter = read_recipe(rival.name).drafter
        options = override(find("drafter", drafter.name), drafter.options, rival.options)
        beside = self._beside()
        filled = dict(rival.roles)
        for slot in slots_of(drafter.name, options):
            if (name := choose(slot, rival.roles, beside)) is not None:
                filled[slot.role] = name if slot.role == "datastore" else self._made(name)
        return filled

    def _nested(self, value: Any) -> Any:
        """An option that describes drafters (as `several`'s does), with the models of those made too."""
        if isinstance(value, list | tuple):
            return [self._nested(one) for one in value]
        if not isinstance(value, dict) or NESTED not in value:
            return value
        options = {key: one for key, one in value.items() if key != NESTED}
        made = self.make(Rival(name=value[NESTED], options=options))
        return {NESTED: made.name, **made.options}

    def _made(self, name: str) -> str:
        """Where the model of this name is, made if it has to be."""
        base, *steps = self.target.split("@")
        sizes = [step for step in steps if step not in ROUNDINGS]
        if "@" in name:
            path = make_model(name, self.shelf).path
        elif sizes and method_of(resolve(name)) is not None:
            path = _inflated_head(resolve(name), resolve(base), sizes, self.shelf)
        else:
            return name
        self.names[str(path)] = name
        return str(path)


def _model_of(drafter: str, options: Mapping[str, Any]) -> str:
    """The model that these options name, or the default; "" for none."""
    return str(getattr(make_options(find("drafter", drafter), options), "model", None) or "")


def _short(companions: Companions) -> Companions:
    """The zoo's models by their names, which are those of every machine."""
    home = zoo.path("target").parent

    def short(place: str) -> str:
        return f"zoo:{Path(place).name}" if Path(place).parent == home else place

    return {role: {drafter: short(place) for drafter, place in named.items()} for role, named in companions.items()}


def _inflated_head(head: Path, target: Path, sizes: list[str], shelf: Shelf) -> Path:
    for size in sizes:
        width, depth = read_size(size)
        make = partial(inflate_head, head, target, width=width, depth=depth)
        head = shelf.get(f"{head.name}-{size}", [digest_weights(head), digest_weights(target), size], make)
        target = inflated(target, size, shelf)
    return head


def method_of(directory: Path) -> LearnMethod[Any, Any] | None:
    """How the head in a directory is trained and inflated; None: it holds no head."""
    path = directory / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = (find_learner(name) for name in learner_names())
    return next((method for method in known if method.is_named(raw)), None)


def inflate_head(head_dir: Path, target_dir: Path, out_dir: Path, *, width: int = 1, depth: int | None = None) -> None:
    """Write to `out_dir` the head in `head_dir` for the target in `target_dir`, inflated by `width` and `depth`.

    It then costs what a head of that target would; kept small, on the first copy of the channels, it would guess the
    same for less than any real one. How a head grows is its method's own affair (`LearnMethod.inflate`).
    """
    method, target = method_of(head_dir), load_model(target_dir)
    assert method is not None and method.inflate is not None
    method.inflate(head_dir, target, out_dir, width, target.config.num_layers if depth is None else depth)
