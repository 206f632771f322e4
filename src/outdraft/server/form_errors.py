"""What is wrong with a form, or too long, named by the field of the request that it came from: the engine has one field
for all forms, and one for all prompts."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from outdraft.options.errors import ContextLengthError, RequestError
from outdraft.server.errors import TOO_LONG, ApiError, clean
from outdraft.server.schema.sampling import SamplingFields

_OF_FORM = re.compile(r"\w+ of structured_outputs (.+)")
_GRAMMAR = re.compile(r"\bat \d+\(\d+\): | \d+ \| .*")  # one that the server made means nothing to the reader


@contextmanager
def told_by_field(body: SamplingFields) -> Iterator[None]:
    """Raises `ApiError` in place of a `RequestError` about a prompt that is too long, or about a form of
    `structured_outputs`."""
    try:
        yield
    except ContextLengthError as error:
        own = next((name for name in ("messages", "prompt") if name in type(body).model_fields), "token_ids")
        param = "negative_prompt" if "negative prompt" in str(error) else own
        raise ApiError(400, clean(error), param=param, code=TOO_LONG) from error
    except RequestError as error:
        found = _OF_FORM.match(str(error))
        if found is None:
            raise
        if body.structured_outputs is not None:
            raise ApiError(400, clean(error), param="structured_outputs") from error
        form = body.response_format is not None and body.response_format.type != "text"
        fields = [name for name, given in (("response_format", form), ("tools", getattr(body, "tools", None))) if given]
        why = _GRAMMAR.sub("", found[1])
        raise ApiError(400, f"{' or '.join(fields)}: its schema {why}", param=fields[0]) from error
