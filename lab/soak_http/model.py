"""The model that is served: a copy of one, with a chat template that knows tools."""

import json
import shutil
from pathlib import Path

from outdraft.weights.hub import resolve

TEMPLATE = """\
{%- if tools %}<|system|>Tools: {% for tool in tools %}{{ tool | tojson }}<tool_call>{% endfor %}
{% endif -%}
{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}"""


def write_model(name: str, directory: Path) -> Path:
    """Of the model `name`, into a directory that does not exist yet."""
    shutil.copytree(resolve(name), directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    return directory
