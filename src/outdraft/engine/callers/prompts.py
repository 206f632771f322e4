"""Prompts in the forms a caller may give them, turned into requests of token ids.

"text"                                      read by the model's tokenizer
{"prompt": "text"}                          the same; or what else the model's codec encodes, as an image
{"prompt_token_ids": [1, 2, 3]}             ids as they are; needs no tokenizer
{..., "references": ["text", [4, 5], ...]}  beside either: what the answer may copy from, for drafters that look up
{..., "negative_prompt": "text" or [4, 5]}  beside either: what guidance leads away from (`guidance_scale`)
{..., "prompt_embeds": [P, D]}              beside either: vectors in place of embeddings; NaN rows: use the token
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any

from outdraft.codecs.codec import Codec, text_codec
from outdraft.codecs.grammar.compile import Grammars
from outdraft.codecs.parts import PromptParts
from outdraft.core.logprobs import LogprobsMode
from outdraft.core.request import Request, share
from outdraft.engine.callers.result import Result
from outdraft.engine.requests.beside import NONE, NOTHING, read_ids, read_own, read_words
from outdraft.engine.requests.resume import each_resumed
from outdraft.engine.requests.spelled import form_of, spell_settings
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.options.shown import shown

Prompt = str | Mapping[str, Any]
_KEYS = ("prompt", "prompt_token_ids", "references", "negative_prompt", "prompt_embeds")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReader:
    """Reads prompts for one model, `name` in errors. Raises `RequestError` for whatever it cannot read."""

    name: str
    codec: Codec[Any] | None
    grammars: Grammars | None = None  # compiles the forms that answers are to have
    logprobs_mode: LogprobsMode = "raw_logprobs"  # of requests that name none
    parts: PromptParts = field(default_factory=PromptParts)  # of messages, that are not text

    def requests(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        per_request: Mapping[str, Any] | None = None,
    ) -> list[Request]:
        """One request for each prompt. `params`: for all, or one for each; `per_request`: `Request`'s other fields."""
        words = read_words(per_request, self.encode) if per_request else NONE
        others = {"logprobs_mode": self.logprobs_mode, **words.fields}
        listed = list(each(prompts))
        read = [self.encode(prompt) for prompt in listed]
        own = [read_own(one, self.encode) if isinstance(one, Mapping) else NOTHING for one in listed]
        settings = read_settings(params, len(read))
        resumed = each_resumed(words.resumed, settings) if words.resumed else [()] * len(read)
        each_once = {id(one): one for one in settings}  # one may be for many
        spelled = {
            key: spell_settings(one, self.codec, self.name) if one.bad_words or one.forced_prefix else one
            for key, one in each_once.items()
        }
        forms = {  # one account for all texts
            key: {} if one.structured_outputs is None else form_of(one, others, self.grammars, self.codec, self.name)
            for key, one in each_once.items()
        }
        asked = [
            Request(
                prompt_token_ids=ids,
                params=spelled[id(one)],
                references=beside.references + words.references,
                speculative=words.speculative,
                negative_prompt_token_ids=words.negative if beside.negative is None else beside.negative,
                resume_token_ids=texts,
                **{**others, **forms[id(one)], **beside.fields},
            )
            for ids, beside, one, texts in zip(read, own, settings, resumed, strict=True)
        ]
        share(asked)
        return asked

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt in any of its forms."""
        if isinstance(prompt, Mapping):
            if len(set(prompt) & {"prompt", "prompt_token_ids"}) != 1 or set(prompt) - set(_KEYS):
                raise RequestError(
                    "a prompt mapping has one of the keys 'prompt' and 'prompt_token_ids', and 'references', "
                    f"'negative_prompt' and 'prompt_embeds' if wanted; got {shown(list(prompt))}"
                )
            if "prompt_token_ids" in prompt:
                return read_ids(prompt["prompt_token_ids"])
            prompt = prompt["prompt"]
        if self.codec is not None and isinstance(prompt, self.codec.encodes):
            return tuple(self.codec.encode(prompt))
        if not isinstance(prompt, str):
            raise RequestError(
                f"a prompt is a string or a mapping, not {type(prompt).__name__}; ids are given as "
                "{'prompt_token_ids': [...]}"
            )
        text_codec(self.codec, f"the prompt {shown(prompt)}")
        raise RequestError(
            f"{self.name} has no tokenizer.json: put the model's own beside it, or give ids as "
            "{'prompt_token_ids': [...]}"
        )


def one_of(params: Any, sampling_params: Any) -> Any:
    """The settings, under whichever of their two names they were given."""
    if params is not None and sampling_params is not None:
        raise RequestError("params and sampling_params are two names of the same settings: give one of them")
    return sampling_params if params is None else params


def gathered(asked: Seq[Request], results: Seq[Result], prompts: Seq[Prompt]) -> list[Result]:
    """Results of all texts -> one for each prompt, with the prompt's own text."""
    texts = iter(results)
    made = []
    for request, prompt in zip(asked, prompts, strict=True):
        text = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
        first, *others = (
            replace(next(texts), prompt=text if isinstance(text, str) else None, index=i)
            for i in range(request.params.n)
        )
        made.append(replace(first, others=tuple(others)) if others else first)
    return made


def read_settings(params: Any, count: int) -> list[SamplingParams]:
    """Settings for so many prompts: one for all, or one for each."""
    params = SamplingParams() if params is None else params
    settings = list(params) if isinstance(params, list | tuple) else [params] * count
    if len(settings) != count:
        raise RequestError(f"{count} prompts but {len(settings)} sampling settings: give one, or one for each")
    for one in settings:
        if not isinstance(one, SamplingParams):
            raise RequestError(f"sampling settings are SamplingParams(...), not {type(one).__name__}")
    return settings


def each(prompts: Any) -> Iterable[Any]:
    """The prompts of a list. Raises `RequestError` for what is none."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise RequestError(f"prompts={shown(prompts)} must be a prompt or a list of prompts")
    try:
        yield from prompts
    except TypeError as error:  # a tensor without dimensions calls itself iterable
        raise RequestError(f"prompts={shown(prompts)} must be a prompt or a list of prompts") from error
