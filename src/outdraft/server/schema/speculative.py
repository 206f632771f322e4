"""What a request may say of speculation, and what an answer reports of it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from outdraft.options.ranges import MOST_NODES
from outdraft.server.schema.base import Name, No, Table


class Speculative(Table):
    """How one request is drafted. What is left out is the server's own choice; the text is the same either way."""

    method: Name | None = None  # one of the methods that this server holds
    num_speculative_tokens: Annotated[int, Field(ge=0, le=MOST_NODES)] | None = None  # the most of a round; 0: plain
    verifier: Name | None = None  # the acceptance rule
    policy: Name | None = None  # fixed: always as many as num_speculative_tokens says; else the server's own


def words(asked: "Speculative | Literal[False] | None") -> Mapping[str, Any] | Literal[False] | None:
    """As `LLM.open` takes them, without what was left out."""
    return asked.model_dump(exclude_none=True) if isinstance(asked, Speculative) else asked


SpeculativeField = Speculative | No | None  # False: plain decoding
