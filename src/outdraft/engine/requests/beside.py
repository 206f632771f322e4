"""What a caller gives beside prompts and sampling settings: for all prompts of a call, or in one prompt's mapping.

generate(prompts, params, references=[...], negative_prompt="...", speculative={...}, timeout=5)      `Words`
{"prompt": "...", "references": [...], "negative_prompt": "..."}                                      `Own`
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, fields
from operator import index
from typing import Any, get_type_hints

from outdraft.core.request import Request
from outdraft.engine.requests.speculative import read_speculative
from outdraft.options.checked import check_value
from outdraft.options.errors import RequestError
from outdraft.options.foreign_params import called_here
from outdraft.options.limits import ALL_REFERENCES, MOST_REFERENCES, REFERENCE_TOKENS, RESUMED_TOKENS
from outdraft.options.near_miss import near_miss
from outdraft.options.params import DEFAULTS
from outdraft.options.ranges import MOST_NODES
from outdraft.options.shown import shown
from outdraft.options.speculative import Speculative
from outdraft.options.types import plain

Encode = Callable[[Any], tuple[int, ...]]
_HINTS = get_type_hints(Request)
_PER_REQUEST = [one.name for one in fields(Request) if one.name not in ("prompt_token_ids", "params", "once")]
_PER_REQUEST.append("negative_prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What one prompt brings in its own mapping."""

    references: tuple[tuple[int, ...], ...] = ()
    negative: tuple[int, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)  # of `Request`


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Own):
    """What is said for all prompts of a call."""

    speculative: Speculative | None = None
    resumed: tuple[tuple[int, ...], ...] = ()  # what each text had written before it was cut off elsewhere


NOTHING, NONE = Own(), Words()


def read_own(prompt: Mapping[str, Any], encode: Encode) -> Own:
    """A prompt's own references and its own negative prompt. `encode`: a text's ids."""
    references, negative = prompt.get("references"), prompt.get("negative_prompt")
    vectors = check_value("prompt_embeds", prompt.get("prompt_embeds"), _HINTS["prompt_embeds"], error=RequestError)
    return Own(
        references=_references(references, encode),
        negative=_negative(negative, None, encode),
        fields={} if vectors is None else {"prompt_embeds": vectors},
    )


def read_words(given: Mapping[str, Any], encode: Encode) -> Words:
    """Raises `RequestError` for a word that is none, or belongs elsewhere, and for a value that cannot be."""
    others = dict(given)
    for key in others:
        if (called := called_here(key, DEFAULTS)) is not None:
            raise RequestError(
                f"{key}={shown(others[key])} is a sampling setting, and belongs in SamplingParams: "
                f"generate(prompt, SamplingParams({called}=...))"
            )
        if key not in _PER_REQUEST:
            raise RequestError(
                f"a request takes no {shown(key)}{near_miss(key, _PER_REQUEST)}; beside prompt and sampling "
                f"settings it takes {', '.join(_PER_REQUEST)}"
            )
    speculative = _speculative(others)
    references = _references(others.pop("references", None), encode)
    negative = _negative(others.pop("negative_prompt", None), others.pop("negative_prompt_token_ids", None), encode)
    for name, value in others.items():
        others[name] = check_value(name, value, _HINTS[name], error=RequestError)
    wanted = others.get("num_speculative_tokens")
    if wanted is not None and not 0 <= wanted <= MOST_NODES:
        raise RequestError(
            f"num_speculative_tokens={wanted} is out of range: it must be at least 0 (plain decoding) and at most "
            f"{MOST_NODES}"
        )
    resumed = others.pop("resume_token_ids", ())
    check_size("resume_token_ids", sum(map(len, resumed)), RESUMED_TOKENS, "tokens")
    return Words(references=references, negative=negative, speculative=speculative, resumed=resumed, fields=others)


def _speculative(others: dict[str, Any]) -> Speculative | None:
    """What is said of speculation, which is taken out of `others`."""
    words = read_speculative(others.pop("speculative", None))
    count = others.get("num_speculative_tokens")
    if words is not None and words.num_speculative_tokens is not None and count is not None:
        raise RequestError(
            f"num_speculative_tokens={shown(count)} is given beside speculative, which says "
            f"{words.num_speculative_tokens}: give it once"
        )
    return words


def _negative(text: Any, ids: Any, encode: Encode) -> tuple[int, ...] | None:
    """A negative prompt, given as a text (or as ids) or as ids; None: none."""
    if text is not None and ids is not None:
        raise RequestError("negative_prompt and negative_prompt_token_ids are the same thing: give one of them")
    if isinstance(text, str):
        return encode(text)
    given = ids if text is None else text
    return None if given is None else read_ids(given)


def _references(texts: Any, encode: Encode) -> tuple[tuple[int, ...], ...]:
    """Texts, or lists of ids, as ids; None: none."""
    if texts is None:
        return ()
    if not isinstance(texts, list | tuple):
        raise RequestError(f"'references' is a list of texts, not {shown(texts)}: write [...] around a single one")
    check_size("references", len(texts), MOST_REFERENCES, "texts")
    check_size("references", sum(len(one) for one in texts if isinstance(one, str)), ALL_REFERENCES, "characters")
    read = tuple(encode(text) if isinstance(text, str) else read_ids(text) for text in texts)
    check_size("references", sum(map(len, read)), REFERENCE_TOKENS, "tokens")
    return read


def check_size(name: str, size: int, most: int, of: str) -> None:
    """Raise `RequestError` for more than one request may bring."""
    if size > most:
        raise RequestError(f"{name}: {size} {of} in all, and {most} are taken: send less")


def read_ids(given: Any) -> tuple[int, ...]:
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
