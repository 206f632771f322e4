"""Prompts in the forms a caller may give them, turned into requests of token ids.

"text"                                      read by the model's tokenizer
{"prompt": "text"}                          the same
{"prompt_token_ids": [1, 2, 3]}             ids as they are; needs no tokenizer
{..., "references": ["text", [4, 5], ...]}  beside either: what the answer may copy from, for drafters that look up
{..., "negative_prompt": "text" or [4, 5]}  beside either: what guidance leads away from (`guidance_scale`)
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, get_type_hints

from outdraft.codecs.chat import Message, render_chat
from outdraft.codecs.grammar.compile import Grammars
from outdraft.codecs.text import TextCodec
from outdraft.core.logprobs import LogprobsMode
from outdraft.core.request import Request, share
from outdraft.engine.callers.writer import Result
from outdraft.engine.requests.resume import each_resumed
from outdraft.engine.requests.speculative import read_speculative
from outdraft.engine.requests.spelled import spell_settings
from outdraft.options.checked import check_value, plain
from outdraft.options.errors import RequestError
from outdraft.options.limits import ALL_REFERENCES, MOST_REFERENCES, REFERENCE_TOKENS, RESUMED_TOKENS
from outdraft.options.near_miss import near_miss
from outdraft.options.params import SamplingParams, called_here
from outdraft.options.ranges import MOST_NODES
from outdraft.options.shown import shown
from outdraft.options.speculative import Speculative

Prompt = str | Mapping[str, Any]
_KEYS = ("prompt", "prompt_token_ids", "references", "negative_prompt")
_HINTS = get_type_hints(Request)
_PER_REQUEST = [one.name for one in fields(Request) if one.name not in ("prompt_token_ids", "params", "once")]
_PER_REQUEST.append("negative_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReader:
    """Reads prompts for one model, `name` in errors. Raises `RequestError` for whatever it cannot read."""

    name: str
    codec: TextCodec | None
    grammars: Grammars | None = None  # compiles the forms that answers are to have
    logprobs_mode: LogprobsMode = "raw_logprobs"  # of requests that name none

    def requests(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        per_request: Mapping[str, Any] | None = None,
    ) -> list[Request]:
        """One request for each prompt. `params`: for all, or one for each; `per_request`: `Request`'s other fields."""
        others = dict(per_request or {})
        for key in others:
            if (called := called_here(key)) is not None:
                raise RequestError(
                    f"{key}={shown(others[key])} is a sampling setting, and belongs in SamplingParams: "
                    f"generate(prompt, SamplingParams({called}=...))"
                )
            if key not in _PER_REQUEST:
                raise RequestError(
                    f"a request takes no {shown(key)}{near_miss(key, _PER_REQUEST)}; beside prompt and sampling "
                    f"settings it takes {', '.join(_PER_REQUEST)}"
                )
        words = self._speculative(others)
        for_all = self._references(others.pop("references", None))
        negative = self._negative(others.pop("negative_prompt", None), others.pop("negative_prompt_token_ids", None))
        for name, value in others.items():
            others[name] = check_value(name, value, _HINTS[name], error=RequestError)
        others.setdefault("logprobs_mode", self.logprobs_mode)
        wanted = others.get("num_speculative_tokens")
        if wanted is not None and not 0 <= wanted <= MOST_NODES:
            raise RequestError(
                f"num_speculative_tokens={wanted} is out of range: it must be at least 0 (plain decoding) and at most "
                f"{MOST_NODES}"
            )
        cut = others.pop("resume_token_ids", ())
        check_size("resume_token_ids", sum(map(len, cut)), RESUMED_TOKENS, "tokens")
        read = [(self.encode(prompt), *self._beside(prompt)) for prompt in each(prompts)]
        settings = read_settings(params, len(read))
        each_once = {id(one): one for one in settings}  # one may be for many
        spelled = {key: spell_settings(one, self.codec, self.name) for key, one in each_once.items()}
        forms = {key: self._constraint(one, others) for key, one in each_once.items()}  # one account for all texts
        asked = [
            Request(
                prompt_token_ids=ids, params=spelled[id(one)],
                references=references + for_all if references else for_all,
                negative_prompt_token_ids=negative if own is None else own, speculative=words, resume_token_ids=texts,
                **{**others, **forms[id(one)]},
            )
            for (ids, references, own), one, texts in zip(read, settings, each_resumed(cut, settings), strict=True)
        ]  # fmt: skip
        share(asked)
        return asked

    def chat(
        self, messages: Seq[Message], /, *, special_tokens_in_messages: bool = False, **variables: Any
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A conversation as a prompt, by the model's chat template, and the stop strings of its answer."""
        if self.codec is None:
            raise RequestError(f"{self.name} has no tokenizer.json: put the model's own beside it to chat")
        control = None if special_tokens_in_messages else self.codec.control
        asked = render_chat(self.codec.chat_template, messages, control=control, **variables)
        return {"prompt_token_ids": self.codec.encode_chat(asked)}, asked.stop

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt in any of its forms."""
        if isinstance(prompt, Mapping):
            if len(set(prompt) & {"prompt", "prompt_token_ids"}) != 1 or set(prompt) - set(_KEYS):
                raise RequestError(
                    "a prompt mapping has one of the keys 'prompt' and 'prompt_token_ids', and 'references' and "
                    f"'negative_prompt' if wanted; got {shown(list(prompt))}"
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

    def _constraint(self, params: SamplingParams, others: Mapping[str, Any]) -> dict[str, Any]:
        """The constraint of the form that the answer is to have; none where it may have any."""
        if params.structured_outputs is None:
            return {}
        if others.get("constraint") is not None:
            raise RequestError("structured_outputs and constraint both say what may be written: leave one out")
        if self.grammars is None:
            raise RequestError(
                f"structured_outputs needs a tokenizer, and {self.name} has none: put it beside the model"
            )
        return {"constraint": self.grammars.constraint(params.structured_outputs, ignore_eos=params.ignore_eos)}

    def _beside(self, prompt: Prompt) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...] | None]:
        """A prompt's own references and its own negative prompt."""
        given: Mapping[str, Any] = prompt if isinstance(prompt, Mapping) else {}
        return self._references(given.get("references")), self._negative(given.get("negative_prompt"))

    def _negative(self, text: Any, ids: Any = None) -> tuple[int, ...] | None:
        """A negative prompt, given as a text (or as ids) or as ids; None: none."""
        if text is not None and ids is not None:
            raise RequestError("negative_prompt and negative_prompt_token_ids are the same thing: give one of them")
        if isinstance(text, str):
            return self.encode(text)
        given = ids if text is None else text
        return None if given is None else _ids(given)

    def _speculative(self, others: dict[str, Any]) -> Speculative | None:
        """What is said of speculation, which is taken out of `others`."""
        words = read_speculative(others.pop("speculative", None))
        count = others.get("num_speculative_tokens")
        if words is not None and words.num_speculative_tokens is not None and count is not None:
            raise RequestError(
                f"num_speculative_tokens={shown(count)} is given beside speculative, which says "
                f"{words.num_speculative_tokens}: give it once"
            )
        return words

    def _references(self, texts: Any) -> tuple[tuple[int, ...], ...]:
        """Texts, or lists of ids, as ids; None: none."""
        texts = () if texts is None else texts
        if not isinstance(texts, list | tuple):
            raise RequestError(f"'references' is a list of texts, not {shown(texts)}: write [...] around a single one")
        check_size("references", len(texts), MOST_REFERENCES, "texts")
        check_size("references", sum(len(one) for one in texts if isinstance(one, str)), ALL_REFERENCES, "characters")
        read = tuple(self.encode(text) if isinstance(text, str) else _ids(text) for text in texts)
        check_size("references", sum(map(len, read)), REFERENCE_TOKENS, "tokens")
        return read


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


def check_size(name: str, size: int, most: int, of: str) -> None:
    """Raise `RequestError` for more than one request may bring."""
    if size > most:
        raise RequestError(f"{name}: {size} {of} in all, and {most} are taken: send less")


def _ids(given: Any) -> tuple[int, ...]:
    """Whole numbers of any kind (numpy's and torch's too), in their order: a set has none, a mapping's are names."""
    listed = plain(given)
    try:
        if isinstance(listed, str | bytes) or not isinstance(listed, Seq):
            raise TypeError
        if any(isinstance(one, bool) for one in listed):  # Python takes True for 1
            raise TypeError
        return tuple(map(index, listed))
    except (TypeError, ValueError, RuntimeError) as error:
        raise RequestError(f"token ids are a list of whole numbers, not {shown(given)}") from error
