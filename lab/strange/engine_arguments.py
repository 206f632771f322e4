"""The arguments of `LLM`, of its methods and of `SamplingParams`."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any

from lab.strange.argument import Argument, keyword
from lab.strange.stage import Stage
from outdraft.core.request import Request
from outdraft.engine.llm import LLM
from outdraft.engine.naming.words import WORDS
from outdraft.options.params import SamplingParams

PROMPT = {"prompt_token_ids": [1, 2, 3, 1, 2]}
FEW = SamplingParams(max_tokens=3)


def engine_arguments(stage: Stage) -> Iterator[Argument]:
    """Every argument of the engine that a user may give."""
    yield from _sampling(stage)
    yield from _requests(stage)
    yield from _engines(stage)


def _sampling(stage: Stage) -> Iterator[Argument]:
    names = [name for name in signature(SamplingParams).parameters if name != "unknown"]
    for temperature in (0.0, 0.8):
        for name in [*names, "topk", "max_new_tokens"]:

            def use(value: Any, name: str = name, temperature: float = temperature) -> object:
                given = {"max_tokens": 3, "temperature": temperature, name: value}
                return stage.llm.generate(PROMPT, SamplingParams(**given))

            yield Argument(name=f"SamplingParams({name}) at temperature {temperature}", use=use)


def _requests(stage: Stage) -> Iterator[Argument]:
    def stream(**given: Any) -> object:
        return list(stage.llm.stream(**{"prompt": PROMPT, "params": FEW, **given}))

    def generate(**given: Any) -> object:
        return stage.llm.generate(**{"prompts": PROMPT, "params": FEW, **given})

    def agenerate(**given: Any) -> object:
        return asyncio.run(stage.llm.agenerate(**{"prompt": PROMPT, "params": FEW, **given}))

    async def drain(**given: Any) -> None:
        async for _ in stage.llm.astream(**{"prompt": PROMPT, "params": FEW, **given}):
            pass

    def astream(**given: Any) -> object:
        return asyncio.run(drain(**given))

    own = [one.name for one in fields(Request) if one.name not in ("prompt_token_ids", "params")]
    for call in (generate, stream, agenerate, astream):
        prompt = "prompts" if call is generate else "prompt"
        for name in (prompt, "params", *own, "negative_prompt", "num_draft_tokens"):
            yield Argument(name=f"{call.__name__}({name})", use=keyword(call, name))
    shapes = {
        "{'prompt': .}": lambda v: {"prompt": v},
        "{'prompt_token_ids': .}": lambda v: {"prompt_token_ids": v},
        "{'prompt_token_ids': [.]}": lambda v: {"prompt_token_ids": [1, v]},
        "{.: 'abc'}": lambda v: {v: "abc"} if _can_be_key(v) else v,
        "[.]": lambda v: [PROMPT, v],
    }
    shapes |= {
        "references: .": lambda v: {**PROMPT, "references": v},
        "references: [.]": lambda v: {**PROMPT, "references": [v]},
        "negative_prompt: .": lambda v: {**PROMPT, "negative_prompt": v},
    }
    for shape, make in shapes.items():
        yield Argument(name=f"generate({shape})", use=_shaped(lambda prompt: generate(prompts=prompt), make))
        yield Argument(name=f"encode({shape})", use=_shaped(lambda prompt: stage.llm.encode(prompt), make))


def _shaped(call: Callable[[Any], object], make: Callable[[Any], Any]) -> Callable[[Any], object]:
    return lambda value: call(make(value))


def _engines(stage: Stage) -> Iterator[Argument]:
    names = [name for name in signature(LLM.__init__).parameters if name not in ("self", "unknown")]
    for name in [*names, "assistant_model", "draftr"]:

        def load(value: Any, name: str = name) -> object:
            llm = LLM(**{"model": stage.target, "dtype": "float32", name: value})
            return llm.generate(PROMPT, FEW)

        yield Argument(name=f"LLM({name})", use=load)

    def speculate(**words: Any) -> object:
        return stage.llm.with_speculation(**words).generate(PROMPT, FEW)

    for name in sorted(WORDS):
        yield Argument(name=f"with_speculation({name})", use=keyword(speculate, name))
    ngram = partial(speculate, drafter="ngram")
    for name in ("verifier", "policy", "num_speculative_tokens", "drafter_options"):
        yield Argument(name=f"with_speculation(drafter='ngram', {name})", use=keyword(ngram, name))
    yield Argument(name="with_drafter(drafter)", use=lambda v: stage.llm.with_drafter(v).generate(PROMPT, FEW))
    yield Argument(name="with_drafter(name)", use=lambda v: stage.llm.with_drafter({"name": v}))
    yield Argument(name="LLM(min_free of elastic)", use=lambda v: _elastic(stage, min_free=v))
    yield Argument(name="LLM(margin of elastic)", use=lambda v: _elastic(stage, margin=v))


def _elastic(stage: Stage, **options: Any) -> object:
    return LLM(stage.target, dtype="bfloat16", precision="elastic", precision_options=options)


def _can_be_key(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True
