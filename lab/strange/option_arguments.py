"""The options of every drafter, rule and policy, by the ways in which they can be given."""

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from lab.strange.argument import Argument, keyword
from lab.strange.engine_arguments import FEW, PROMPT
from lab.strange.stage import Stage
from lab.strange.values import as_toml
from outdraft.core.registry import KINDS, AnyMethod, find, names
from outdraft.engine.naming.recipe import read_recipe

RECIPE = {
    "paper": {"title": "A", "year": 2020, "link": "b"},
    "drafter": {"name": "ngram", "options": {"max_ngram": 3}},
    "verifier": {"name": "auto"},
    "policy": {"name": "fixed"},
    "modifies_target": False,
}


def option_arguments(stage: Stage) -> Iterator[Argument]:
    """Every option of every plug-in."""
    for kind in KINDS:
        for name in names(kind):
            yield from _options(stage, find(kind, name))
    yield from _config(stage)
    yield from _recipes(stage)


def side(stage: Stage, method: AnyMethod) -> dict[str, Any]:
    """Options that give a drafter the tiny models and files that it needs."""
    known = {one.name for one in fields(method.options)}
    draft = {"method": "draft_model", "model": str(stage.draft)}
    needs = {"datastore": str(stage.store), "draft": draft, "models": [str(stage.draft)]}
    needs |= {"cache_dir": str(stage.directory / "tables")}
    if _default(method, "model") == "zoo:draft":
        needs["model"] = str(stage.draft)
    if isinstance(_default(method, "drafter"), dict):
        needs["drafter"] = draft
    return {name: value for name, value in needs.items() if name in known}


def _default(method: AnyMethod, name: str) -> Any:
    return getattr(method.options(), name, None)


def _options(stage: Stage, method: AnyMethod) -> Iterator[Argument]:
    own = str(_default(method, "model") or "")
    at_zoo = own.startswith("zoo:") and own != "zoo:draft"
    given = side(stage, method)
    for name in [one.name for one in fields(method.options)] + ["max_ngrams"]:

        def use(value: Any, name: str = name) -> object:
            llm = stage.zoo if at_zoo else stage.llm
            if method.kind == "drafter":
                llm = llm.with_speculation(drafter={"name": method.name, **given, name: value})
            else:
                words = {method.kind: {"name": method.name, name: value}}
                llm = llm.with_speculation(drafter="ngram", **words)
            return llm.generate(PROMPT, FEW)

        yield Argument(name=f"{method.kind} {method.name}: {name}", use=use)


def _config(stage: Stage) -> Iterator[Argument]:
    good = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    for name in (*good, "prompt_lookup_min", "rejection_sample_method", "policy", "model", "quantization", "methd"):

        def use(value: Any, name: str = name) -> object:
            return stage.llm.with_speculation(speculative_config={**good, name: value}).generate(PROMPT, FEW)

        yield Argument(name=f"speculative_config[{name!r}]", use=use)


def _recipes(stage: Stage) -> Iterator[Argument]:
    path = stage.directory / "strange.toml"
    yield Argument(name="read_recipe(.)", use=read_recipe)
    for key in [*RECIPE, "drafer"]:
        yield Argument(name=f"recipe {key}", use=keyword(partial(_read_with, stage, path), key))
        table = RECIPE.get(key)
        for inner in [*table, "link", "options"] if isinstance(table, dict) else []:

            def use(value: Any, key: str = key, inner: str = inner, table: Any = table) -> object:
                return _read(stage, path, {**RECIPE, key: {**table, inner: value}})

            yield Argument(name=f"recipe [{key}] {inner}", use=use)


def _read_with(stage: Stage, path: Path, **changes: Any) -> object:
    return _read(stage, path, {**RECIPE, **changes})


def _read(stage: Stage, path: Path, recipe: dict[str, Any]) -> object:
    lines = [f"{key} = {text}" for key, value in recipe.items() if (text := as_toml(value)) is not None]
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    return stage.llm.with_drafter(path).generate(PROMPT, FEW)
