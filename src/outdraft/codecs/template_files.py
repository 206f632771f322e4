"""Which chat template a directory has, where several files hold one. The first of these, as in transformers 5:

    chat_template.jinja, additional_chat_templates/NAME.jinja       together: the default, and others by name
    tokenizer_config.json
    chat_template.json, processor_config.json                       of processors for pictures; where nothing else is

Templates that are left out though they differ are noted.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.codecs.documents import read_json, read_text
from outdraft.codecs.noted import note

FOLDER = "additional_chat_templates"
_OF_PROCESSORS = ("chat_template.json", "processor_config.json")
_TAKEN = ("default", "tool_use")


def read_templates(directory: Path, said: Any) -> Mapping[str, Any]:
    """{"chat_template": a text, or a list of named ones}; {} if there is none. `said`: what tokenizer_config.json says.

    Raises `ModelLoadError` for a damaged file.
    """
    found: dict[str, Any] = {}
    own = {path.stem: read_text(path) for path in sorted((directory / FOLDER).glob("*.jinja"))}
    if os.path.lexists(main := directory / "chat_template.jinja"):
        own["default"] = read_text(main)
    if own and "default" not in own and isinstance(said, str):
        own["default"], said = said, None
    if own:
        found["chat_template.jinja"] = _listed(own) if set(own) != {"default"} else own["default"]
    if said is not None:
        found["tokenizer_config.json"] = said
    for name in _OF_PROCESSORS:
        template = read_json(directory / name).get("chat_template")
        if template is not None:
            found[name] = _listed(template) if isinstance(template, Mapping) else template
    if not found:
        return {}
    taken, template = next(iter(found.items()))
    for name, other in found.items():
        if other != template:
            where, why = f"{directory.name}/{name}", f"left out: the template of {taken} is taken"
            note(where, {"chat_template": other}, why, level=logging.WARNING)
    note_further(f"{directory.name}/{taken}", template)
    return {"chat_template": template}


def note_further(where: str, template: Any) -> None:
    """Note which of several named templates no conversation is written by."""
    unused = {str(one["name"]): one["template"] for one in _entries(template) if _is_further(one)}
    note(where, unused, "left out: a conversation is written by default or tool_use alone")


def _listed(named: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "template": template} for name, template in named.items()]


def _entries(template: Any) -> list[Any]:
    return template if isinstance(template, list) else []


def _is_further(entry: Any) -> bool:
    return isinstance(entry, Mapping) and {"name", "template"} <= set(entry) and entry["name"] not in _TAKEN
