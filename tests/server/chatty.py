"""The zoo's target with a chat template beside it, and servers over it. The model was taught neither."""

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from outdraft import LLM
from outdraft.server.serve import make_config
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings
from outdraft.weights.hub import resolve

QWEN = """\
{%- if tools %}<|im_start|>system tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", \
"arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif -%}"""
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
            "$defs": {"city": {"enum": ["Rome", "Bern", "Oslo"]}},
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
HELLO = [{"role": "user", "content": "Hello"}]


def write_model(directory: Path, template: str | list[dict[str, str]]) -> Path:
    """A copy of the zoo's target with this chat template."""
    shutil.copytree(resolve("zoo:target"), directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**config, "chat_template": template}))
    return directory


@contextmanager
def served(llm: LLM, **settings: Any) -> Iterator[str]:
    """The address of a server, in a thread of this process."""
    service = Service(llm, ServerSettings(served_model_name=("target",), **settings))
    server = uvicorn.Server(make_config(service, port=0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def events(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of a stream's events, without the last `[DONE]`."""
    with client.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
