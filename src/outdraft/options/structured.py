"""`StructuredOutputsParams`: the form that an answer must have, under the names that vLLM uses for it.

A light record: it is checked when it is made, and compiled where prompts are read (`codecs/grammar`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from outdraft.options.checked import check_fields
from outdraft.options.errors import RequestError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown

KINDS = ("json", "regex", "choice", "grammar", "json_object")
ELSEWHERE = {  # what vLLM has and this engine has not, with what to do
    "structural_tag": "write the tags into a grammar, with %json {...} for the JSON between them",
    "disable_fallback": "there is one library and nothing to fall back to: leave it out",
    "disable_additional_properties": "write additionalProperties: false into the schema",
    "backend": "there is one library, llguidance: leave it out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """Exactly one of the five forms, and how JSON is laid out.

    Raises `RequestError` naming the field and its value.
    """

    json: str | Mapping[str, Any] | None = None  # a JSON schema
    regex: str | None = None  # in Rust's syntax: without look-around and back references
    choice: tuple[str, ...] | None = None  # one of these texts
    grammar: str | None = None  # Lark's notation, or GBNF
    json_object: bool | None = None  # any JSON object
    disable_any_whitespace: bool = False  # JSON without blanks and line ends between its parts
    # of JSON: a regex of what may stand between its parts; None: a blank, or a line
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.choice, str):
            raise RequestError(f"choice={shown(self.choice)} of structured_outputs must be a list of texts")
        check_fields(self, of="structured_outputs", error=RequestError)
        given = [kind for kind in KINDS if getattr(self, kind) is not None and getattr(self, kind) is not False]
        if len(given) != 1:
            told = f"{' and '.join(given)} are given" if given else "none is given"
            raise RequestError(f"structured_outputs takes exactly one of {', '.join(KINDS)}; {told}")
        if self.choice is not None and not (self.choice and all(self.choice)):
            raise RequestError(
                f"choice={shown(self.choice)} of structured_outputs must be non-empty texts, one or more"
            )
        if self.whitespace_pattern is not None and self.disable_any_whitespace:
            raise RequestError("structured_outputs: disable_any_whitespace leaves no place for a whitespace_pattern")
        if self.kind not in ("json", "json_object") and (self.whitespace_pattern or self.disable_any_whitespace):
            raise RequestError(
                f"structured_outputs: whitespace is laid out for json and json_object, and not for {self.kind}: leave "
                "out whitespace_pattern and disable_any_whitespace"
            )

    @property
    def kind(self) -> str:
        """Which of the five forms it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None and getattr(self, kind) is not False)


def read_structured(given: Any) -> StructuredOutputsParams | None:
    """What a caller gave as `structured_outputs`: the record itself, a table of its fields, or None."""
    if given is None or isinstance(given, StructuredOutputsParams):
        return given
    if not isinstance(given, Mapping):
        raise RequestError(
            f"structured_outputs={shown(given)} must be a StructuredOutputsParams, or a table with one of "
            f"{', '.join(KINDS)}"
        )
    known = [one.name for one in fields(StructuredOutputsParams)]
    for name in given:
        if name in known:
            continue
        cure = f": {ELSEWHERE[name]}" if name in ELSEWHERE else near_miss(name, known)
        raise RequestError(f"structured_outputs takes no {shown(name)}{cure}; it takes {', '.join(known)}")
    return StructuredOutputsParams(**given)
