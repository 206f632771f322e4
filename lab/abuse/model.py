"""The model that is served: a copy of one, whose chat template knows tools and reads what a request may give it."""

import json
from pathlib import Path

from lab.soak_http import model

_READS = "{{ reasoning_effort }}{{ style | string }}"


def write_model(name: str, directory: Path) -> Path:
    """Of the model `name`, into a directory that does not exist yet."""
    made = model.write_model(name, directory)
    path = made / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "chat_template": config["chat_template"] + _READS}))
    return made
