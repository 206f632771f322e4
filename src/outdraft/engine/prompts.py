"""Prompts in the forms a caller may give them, turned into requests of token ids.

"text"                                      read by the model's tokenizer
{"prompt": "text"}                          the same
{"prompt_token_ids": [1, 2, 3]}             ids as they are; needs no tokenizer
{..., "references": ["text", [4, 5], ...]}  beside either: what the answer may copy from, for drafters that look up
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields
from operator import index
from typing import Any

from outdraft.codecs.text import TextCodec
from outdraft.core.errors import RequestError
from outdraft.core.params import SamplingParams
from outdraft.core.registry import near_miss
from outdraft.core.request import Request

Prompt = str | Mapping[str, Any]
_KEYS = ("prompt", "prompt_token_ids", "references")
_PER_REQUEST = [one.name for one in fields(Request) if one.name not in ("prompt_token_ids", "params")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReader:
    """Reads prompts for one model, `name` in errors. Raises `RequestError` for whatever it cannot read."""

    name: str
    codec: TextCodec | None

    def requests(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        per_request: Mapping[str, Any] | None = None,
    ) -> list[Request]:
        """One request for each prompt. `params`: for all, or one for each; `per_request`: `Request`'s other fields."""
        prompts, others = list(prompts), dict(per_request or {})
        for key in others:
            if key not in _PER_REQUEST:
                raise RequestError(
                    f"a request takes no {key!r}{near_miss(key, _PER_REQUEST)}; beside prompt and sampling settings it "
                    f"takes {', '.join(_PER_REQUEST)}"
                )
        for_all = self._references(others.pop("references", ()))
        return [
            Request(
                prompt_token_ids=self.encode(prompt),
                params=setting,
                references=self._own_references(prompt) + for_all,
                **others,
            )
            for prompt, setting in zip(prompts, _settings(params, len(prompts)), strict=True)
        ]

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt in any of its forms."""
        if isinstance(prompt, Mapping):
            if len(set(prompt) & {"prompt", "prompt_token_ids"}) != 1 or set(prompt) - set(_KEYS):
                raise RequestError(
                    "a prompt mapping has one of the keys 'prompt' and 'prompt_token_ids', and 'references' if wanted; "
                    f"got {sorted(prompt)}"
                )
            if "prompt_token_ids" in prompt:
                return _ids(prompt["prompt_token_ids"])
            prompt = prompt["prompt"]
        if not isinstance(prompt, str):
            raise RequestError(
                f"a prompt is a string or a mapping, not {type(prompt).__name__}; ids are given as "
                "{'prompt_token_ids': [...]}"
            )
        if self.codec is None:
            raise RequestError(
                f"{self.name} has no tokenizer.json: put the model's own beside it, or give ids as "
                "{'prompt_token_ids': [...]}"
            )
        return tuple(self.codec.encode(prompt))

    def _own_references(self, prompt: Prompt) -> tuple[tuple[int, ...], ...]:
        return self._references(prompt.get("references", ())) if isinstance(prompt, Mapping) else ()

    def _references(self, texts: Any) -> tuple[tuple[int, ...], ...]:
        """Texts, or lists of ids, as ids."""
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise RequestError(f"'references' is a list of texts, not {texts!r:.60}: write [...] around a single one")
        return tuple(self.encode(text) if isinstance(text, str) else _ids(text) for text in texts)


def _settings(params: Any, count: int) -> list[SamplingParams]:
    params = SamplingParams() if params is None else params
    settings = list(params) if isinstance(params, list | tuple) else [params] * count
    if len(settings) != count:
        raise RequestError(f"{count} prompts but {len(settings)} sampling settings: give one, or one for each")
    for one in settings:
        if not isinstance(one, SamplingParams):
            raise RequestError(f"sampling settings are SamplingParams(...), not {type(one).__name__}")
    return settings


def _ids(given: Any) -> tuple[int, ...]:
    """Whole numbers of any kind (numpy's and torch's too)."""
    try:
        return tuple(map(index, given))
    except TypeError as error:
        raise RequestError(f"token ids are a list of whole numbers, not {given!r:.60}") from error
