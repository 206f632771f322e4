"""The official client against a running server: `outdraft serve zoo:target`, then this file.

pip install openai; OPENAI_BASE_URL names another server than http://127.0.0.1:8000/v1, OPENAI_API_KEY a key.
"""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
model = client.models.list().data[0].id

# A stream; the last chunk has the usage and the statistics of speculation.
print("stream:", end="")
for piece in client.completions.create(
    model=model, prompt="It was late when", max_tokens=40, seed=1, stream=True, stream_options={"include_usage": True}
):
    for choice in piece.choices:
        print(choice.text, end="", flush=True)
    if piece.usage is not None:
        told = piece.model_extra["metrics"]["speculative_decoding"]
        print(f"\n{piece.usage.completion_tokens} tokens, {told['tokens_per_target_pass']:.2f} for each pass")

# The same request without speculation: the same text, because it has a seed.
asked = {"model": model, "prompt": "It was late when", "max_tokens": 40, "seed": 1}
drafted = client.completions.create(**asked)
plain = client.completions.create(**asked, extra_body={"speculative": False})
print("plain decoding:", "the same text" if plain.choices[0].text == drafted.choices[0].text else "DIFFERENT")

# JSON of a schema; response_format does it too, and leaves blanks to the model, of which a small one writes too many.
schema = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
answer = client.chat.completions.create(
    model=model,
    max_tokens=60,
    temperature=0,
    messages=[{"role": "user", "content": "Where to, and how long?"}],
    extra_body={"structured_outputs": {"json": schema, "disable_any_whitespace": True}},
)
print("JSON:", json.loads(answer.choices[0].message.content))

# A call of a function: with tool_choice required it is always one, with arguments of its schema.
# answer = client.chat.completions.create(..., tools=[...], tool_choice="required")
