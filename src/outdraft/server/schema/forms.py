"""The form that an answer must have, in the words of OpenAI and of vLLM (docs/structured_output.md)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from outdraft.options.errors import RequestError
from outdraft.options.structured import ELSEWHERE, StructuredOutputsParams
from outdraft.server.errors import wrong_field
from outdraft.server.schema.base import JsonTable, Name


class StructuredOutputs(JsonTable):
    """Exactly one of the first five."""

    CURES: ClassVar[Mapping[str, str]] = ELSEWHERE

    json_: str | dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None

    def params(self) -> StructuredOutputsParams:
        """Raises `ApiError` unless it is exactly one."""
        given = {one: getattr(self, one) for one in StructuredOutputs.model_fields}
        try:
            return StructuredOutputsParams(json=given.pop("json_"), **given)
        except RequestError as error:
            raise wrong_field(str(error), "structured_outputs") from error


class JsonSchema(JsonTable):
    """A schema with a name. It is held whatever `strict` says."""

    CURES: ClassVar[Mapping[str, str]] = {"description": "the model is not shown it: say it in a message"}

    name: Name | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(JsonTable):
    """text, json_object, or json_schema with its schema."""

    TYPE_CURE: ClassVar[str] = "write tags into a grammar of structured_outputs"

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def params(self) -> StructuredOutputsParams | None:
        """None: any text. Raises `ApiError` where the type and the schema do not go together."""
        if (self.type == "json_schema") != (self.json_schema is not None):
            needs = "needs" if self.json_schema is None else "takes no"
            raise wrong_field(
                f"response_format of type {self.type} {needs} json_schema: {{schema: {{...}}}}",
                "response_format.json_schema",
            )
        if self.type == "text":
            return None
        if self.json_schema is None:
            return StructuredOutputsParams(json_object=True)
        return StructuredOutputsParams(json=self.json_schema.schema_)
