"""The form that an answer is to have, as the constraint that holds it to that form."""

from collections.abc import Mapping
from typing import Any

from outdraft.codecs.codec import Codec, text_codec
from outdraft.codecs.grammar.compile import Grammars
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams


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
