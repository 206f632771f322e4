"""Where chat templates run: jinja2's sandbox, with the functions that Hugging Face's own renderer offers.

Imported with the first template only.
"""

import json
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import told

_LONGEST = 1 << 17  # characters; they take a second or two, and the longest that are published have 30,000


def compile_template(source: str) -> Template:
    """A template, ready to render. Raises `ModelLoadError` for one that is too long, or does not compile."""
    if len(source) > _LONGEST:
        raise ModelLoadError(
            f"the chat template has {len(source)} characters, and {_LONGEST} are the most that compile"
        )
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except Exception as error:  # blocks within blocks may break the compiler of Python itself
        raise ModelLoadError(f"the chat template does not compile: {told(error)}") from error


class _Generation(Extension):
    """`{% generation %} ... {% endgeneration %}` marks the assistant's words for trainers; here it only renders."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, by the arguments that templates may give: jinja2's own filter escapes HTML, which would change the
    prompt."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)
