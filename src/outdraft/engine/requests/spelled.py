"""What of sampling settings needs the model's tokenizer: texts, spelled in tokens (`bad_words`, `forced_prefix`), and
`structured_outputs`, compiled into a constraint.

A bad word is spelled twice, with and without a space before it, since it may begin a word or follow another token. Data
in: settings and a codec; data out: the same settings with ids in place of texts, and what holds an answer to its form.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outdraft.codecs.codec import Codec, TextualCodec, text_codec
from outdraft.codecs.grammar.compile import Grammars
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.options.shown import shown

_BEFORE = "\n"  # a text that ends a word and is no part of the next, for tokenizers that begin a text with a space


def spell_settings(params: SamplingParams, given: Codec[Any] | None, name: str) -> SamplingParams:
    """Settings without texts to be found in tokens. `name`: the model's, for errors.

    Raises `RequestError` where there is no tokenizer, or none that can spell the forced prefix.
    """
    texts = [word for word in params.bad_words if isinstance(word, str)]
    prefix = params.forced_prefix
    if isinstance(prefix, str) and prefix:
        texts.append(prefix)
    if not texts:
        return params
    wanted = f"{'bad_words' if texts != [prefix] else 'forced_prefix'}={shown(texts[0])}"
    if (codec := text_codec(given, wanted)) is None:
        raise RequestError(f"{wanted} needs a tokenizer, and {name} has none: give lists of token ids")
    words: dict[tuple[int, ...], None] = {}
    for word in params.bad_words:
        if isinstance(word, str):
            bare = word.lstrip()
            words |= dict.fromkeys(_spell(text, codec) for text in ((bare, " " + bare) if bare else (word,)))
        else:
            words[word] = None
    if isinstance(prefix, str) and prefix:
        ids = _spell(prefix, codec)
        if (told := codec.decode(ids, continues=True)) != prefix:
            raise RequestError(
                f"forced_prefix={shown(prefix)} cannot be spelled by the tokenizer of {name}, whose closest text is "
                f"{shown(told)}: give token ids"
            )
        prefix = ids
    return replace(params, bad_words=tuple(words), forced_prefix=prefix)


def form_of(
    params: SamplingParams, others: Mapping[str, Any], grammars: Grammars | None, codec: Codec[Any] | None, name: str
) -> dict[str, Any]:
    """`Request`'s field `constraint`. `others`: its further fields; `name`: of the model, in errors."""
    if others.get("constraint") is not None:
        raise RequestError("structured_outputs and constraint both say what may be written: leave one out")
    text_codec(codec, "structured_outputs")
    if grammars is None:
        raise RequestError(f"structured_outputs needs a tokenizer, and {name} has none: put it beside the model")
    assert params.structured_outputs is not None
    return {"constraint": grammars.constraint(params.structured_outputs, ignore_eos=params.ignore_eos)}


def _spell(text: str, codec: TextualCodec) -> tuple[int, ...]:
    """Ids that read as `text` behind other text, if there are such; else the tokenizer's own of the text alone."""
    alone = codec.encode(text, add_special=False)
    if codec.decode(alone, continues=True) == text:
        return tuple(alone)
    before, whole = (codec.encode(one, add_special=False) for one in (_BEFORE, _BEFORE + text))
    behind = whole[len(before) :]
    if whole[: len(before)] == before and codec.decode(behind, continues=True) == text:
        return tuple(behind)
    return tuple(alone)
