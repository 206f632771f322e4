"""What is asked: requests of many shapes, and what each must be answered.

kinds(rng)                  bodies for completions, chats and token ids; the same as settings of `LLM`
right(llm, kind)            the texts, written alone and plainly in this process
right_of(reply)             the texts of an answer, in the same form
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams
from outdraft.options.structured import StructuredOutputsParams
from outdraft.testing.prompts import CODE, COPIES, PROSE

_UNICODE = (
    "día — 夜 — ночь",
    "🏳️‍🌈👩‍👩‍👧‍👦",
    "e\u0301\u0323" * 4,
    "\u202eabc\ufeff",
    "\x00\x01\x7f",
    "<|endoftext|>",
    "ﷺ\u00a0𝔘",
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "person", "description": "Note a person", "parameters": SCHEMA}}
_BOUND: tuple[tuple[Mapping[str, Any], StructuredOutputsParams], ...] = (
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}},
        StructuredOutputsParams(json=SCHEMA),
    ),
    ({"structured_outputs": {"regex": "[a-f]{3,9}[0-9]+"}}, StructuredOutputsParams(regex="[a-f]{3,9}[0-9]+")),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, StructuredOutputsParams(choice=("yes", "no"))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The texts of one answer. Calls of tools stand without their ids, which are new each time."""

    texts: tuple[str, ...]
    calls: tuple[tuple[tuple[str, str], ...], ...] = ()
    ids: tuple[tuple[int, ...], ...] | None = None  # where they are given


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One request. `params`: None where only the server can say what is right (it reads calls of tools)."""

    name: str
    path: str
    body: Mapping[str, Any]
    prompts: Any  # texts, lists of ids, or one conversation
    params: SamplingParams | None

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("chat/completions")

    @property
    def count(self) -> int:
        """Texts of an answer."""
        settings = self.body.get("sampling_params", self.body)
        return int(settings.get("n", 1)) * (1 if self.is_chat else len(self.prompts))


def kinds(rng: Random, count: int = 48) -> list[Kind]:
    """Of every shape some."""
    makers = (_completion, _completion, _completion, _ids, _chat, _chat, _bound, _tools)
    return [makers[i % len(makers)](rng, i) for i in range(count)]


def right(llm: LLM, kind: Kind) -> Written | None:
    """Alone and plainly, in this process."""
    if kind.params is None:
        return None
    if kind.is_chat:
        results = [llm.chat(kind.prompts, kind.params, num_speculative_tokens=0)]
    else:
        prompts = [one if isinstance(one, str) else {"prompt_token_ids": one} for one in kind.prompts]
        results = llm.generate(prompts, kind.params, num_speculative_tokens=0)
    texts = [text for one in results for text in one.outputs]
    told = () if "generate" in kind.path else tuple(one.text for one in texts)
    return Written(texts=told, ids=tuple(one.token_ids for one in texts), calls=((),) * len(texts))


def right_of(kind: Kind, reply: Any) -> Written:
    """What a whole reply says."""
    choices = sorted(reply["choices"], key=lambda one: one["index"])
    said = [one["message"] if kind.is_chat else {"content": one.get("text")} for one in choices]
    calls = [[_call(one["function"]) for one in each.get("tool_calls") or ()] for each in said]
    return Written(
        texts=() if "generate" in kind.path else tuple(one["content"] or "" for one in said),
        calls=tuple(map(tuple, calls)),
        ids=tuple(tuple(one["token_ids"]) for one in choices) if all("token_ids" in one for one in choices) else None,
    )


def _call(function: Mapping[str, str]) -> tuple[str, str]:
    return function["name"], function["arguments"]


def _settings(rng: Random, seed: int) -> dict[str, Any]:
    """Under the names that both sides have."""
    words: dict[str, Any] = {"max_tokens": rng.choice((2, 5, 9, 14, 30)), "temperature": 0.0}
    if rng.random() < 0.6:
        words |= {
            "temperature": rng.choice((0.7, 1.0)),
            "seed": seed,
            "top_k": rng.choice((0, 20)),
            "top_p": rng.choice((1.0, 0.9)),
        }
    more: tuple[dict[str, Any], ...] = (
        {},
        {},
        {"ignore_eos": True},
        {"repetition_penalty": 1.2},
        {"frequency_penalty": 0.5},
        {"min_p": 0.05},
        {"stop": [" the", "\n\n"]},
        {"n": rng.choice((2, 3))} if words["temperature"] else {},
        {"banned_token_ids": [5, 6, 7]},
    )
    return words | rng.choice(more)


def _text(rng: Random) -> str:
    text = rng.choice((*PROSE, *CODE, *COPIES)) * rng.choice((1, 1, 2, 4))
    return text + (" " + rng.choice(_UNICODE) if rng.random() < 0.3 else "")


def _completion(rng: Random, seed: int) -> Kind:
    settings = _settings(rng, seed)
    prompts = [_text(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    more = rng.choice(
        ({}, {"logprobs": rng.randrange(3)}, {"return_token_ids": True}, {"user": "u", "metadata": {"a": "b"}})
    )
    body = {"prompt": prompts if len(prompts) > 1 else prompts[0], **settings, **more}
    return Kind(name=f"completion {seed}", path="/v1/completions", body=body, prompts=prompts, params=_params(settings))


def _ids(rng: Random, seed: int) -> Kind:
    settings = _settings(rng, seed)
    settings.pop("stop", None)
    start = [1 + (j * 31) % 900 for j in range(rng.choice((3, 20, 40)))]
    prompt = start + [rng.randrange(1, 900) for _ in range(rng.randrange(1, 60))]
    if rng.random() < 0.5:
        body: dict[str, Any] = {"token_ids": prompt, "sampling_params": settings}
        return Kind(
            name=f"ids {seed}", path="/inference/v1/generate", body=body, prompts=[prompt], params=_params(settings)
        )
    body = {"prompt": prompt, "return_token_ids": True, **settings}
    return Kind(name=f"ids {seed}", path="/v1/completions", body=body, prompts=[prompt], params=_params(settings))


def _chat(rng: Random, seed: int) -> Kind:
    settings = _settings(rng, seed)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": _text(rng)}]
    messages = messages[rng.randrange(2) :]
    more = rng.choice(({}, {"logprobs": True, "top_logprobs": 2}, {"return_token_ids": True}))
    return Kind(
        name=f"chat {seed}",
        path="/v1/chat/completions",
        body={"messages": messages, **settings, **more},
        prompts=messages,
        params=_params(settings),
    )


def _bound(rng: Random, seed: int) -> Kind:
    """The answer has a form."""
    settings: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "seed": seed}
    form, same = rng.choice(_BOUND)
    prompt = _text(rng)
    return Kind(
        name=f"form {seed}",
        path="/v1/completions",
        body={"prompt": prompt, **settings, **form},
        prompts=[prompt],
        params=SamplingParams(structured_outputs=same, **settings),
    )


def _tools(rng: Random, seed: int) -> Kind:
    """A call that is required, or that the model is free to make."""
    settings = {"max_tokens": 40, "temperature": 1.0, "seed": seed}
    messages = [{"role": "user", "content": _text(rng)}]
    choice = rng.choice(("auto", "required", {"type": "function", "function": {"name": "person"}}))
    body = {"messages": messages, "tools": [_TOOL], "tool_choice": choice, **settings}
    return Kind(name=f"tools {seed}", path="/v1/chat/completions", body=body, prompts=messages, params=None)


def _params(settings: Mapping[str, Any]) -> SamplingParams:
    return SamplingParams(**settings)
