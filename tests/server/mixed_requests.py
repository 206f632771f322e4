"""Ragged requests of all kinds for the official client; what it gets of each, and what plain decoding gives for it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import openai

from outdraft import LLM
from outdraft.server.conversation import Conversation, converse
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.schema.completions import CompletionRequest
from outdraft.server.schema.responses import ResponsesRequest
from outdraft.server.service import Service
from tests.server.chatty import CLOCK, WEATHER

STILL = {"chat_template_kwargs": {"enable_thinking": False}}
WORDS = ("It", "was", "late", "in", "the", "evening", "when", "a", "letter", "came", "and", "she", "opened", "it")
FORM = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
LONG = 120  # tokens of a text that is left
SPECULATIVE: tuple[Any, ...] = (
    None,
    False,
    {"num_speculative_tokens": 2},
    {"method": "ngram"},
    {"method": "draft_model", "policy": "fixed"},
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request. `ours`: fields that the official client does not know."""

    kind: str
    known: dict[str, Any]
    ours: dict[str, Any]
    leaves: int | None = None  # the stream is closed after so many pieces


@dataclass(kw_only=True)
class Text:
    """One text of a reply."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # a response tells none
    logprobs: list[float] = field(default_factory=list)
    finish: str | None = None

    def call(self, function: Any) -> None:
        json.loads(function.arguments)
        self.calls.append((function.name, function.arguments))


def mixed(count: int, seed: int) -> list[Asked]:
    """As many requests, of all kinds in turn."""
    return [_made(i, Random(f"{seed} {i}")) for i in range(count)]


def _made(i: int, chance: Random) -> Asked:
    said = " ".join(chance.choices(WORDS, k=chance.randint(1, 40)))
    most = chance.randint(3, 48)
    how: dict[str, Any] = {"seed": chance.randint(0, 999), "temperature": chance.choice([0, 0.7, 1])}
    ours: dict[str, Any] = {"speculative": chance.choice(SPECULATIVE)}
    talk: dict[str, Any] = {"messages": [{"role": "user", "content": said}], **how, "max_tokens": most}
    tools = [{"type": "function", **WEATHER["function"]}]
    write, spoken = {"prompt": said, **how, "max_tokens": most}, {**ours, **STILL}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": FORM, "strict": True}}
    answer = {"input": said, "max_output_tokens": most, "temperature": how["temperature"]}
    seeded = {**spoken, "seed": how["seed"]}
    called = {**answer, "tools": tools, "max_output_tokens": 60, "tool_choice": {"type": "function", "name": "weather"}}
    several = {**write, "n": chance.randint(2, 3), "temperature": 0.9}
    must = {
        **talk,
        "tools": [WEATHER, CLOCK],
        "tool_choice": "required",
        "max_tokens": 60,
        "parallel_tool_calls": False,
    }
    long = {"max_tokens": LONG, "stream": True}
    choices = [
        Asked(kind="chat", known=talk, ours=ours),
        Asked(kind="chat", known={**talk, "stream": True, "stream_options": {"include_usage": True}}, ours=spoken),
        Asked(kind="completion", known={**write, "logprobs": 3}, ours=ours),
        Asked(kind="chat", known={**talk, "logprobs": True, "top_logprobs": 2, "stream": True}, ours=ours),
        Asked(kind="completion", known=several, ours=ours),
        Asked(kind="completion", known={**several, "stream": True}, ours=ours),
        Asked(kind="chat", known={**talk, "stop": ["e", "\n"], "max_tokens": 40}, ours=ours),
        Asked(kind="completion", known={**write, "stop": " th", "max_tokens": 40, "stream": True}, ours=ours),
        Asked(kind="chat", known={**talk, "response_format": form, "max_tokens": 60}, ours=spoken),
        Asked(kind="chat", known=must, ours=spoken),
        Asked(kind="chat", known={**must, "stream": True}, ours=spoken),
        Asked(kind="response", known={**answer, "include": ["message.output_text.logprobs"]}, ours=seeded),
        Asked(kind="response", known={**answer, "instructions": "Be kind.", "stream": True}, ours=seeded),
        Asked(kind="response", known={**called, "stream": True}, ours=seeded),
        Asked(kind="completion", known={**write, **long}, ours={**ours, "ignore_eos": True}, leaves=2),
        Asked(kind="chat", known={**talk, **long}, ours={**ours, "ignore_eos": True}, leaves=3),
    ]
    return choices[i % len(choices)]


def ask(client: openai.OpenAI, asked: Asked) -> list[Text]:
    """What the official client gets, the texts of a request in their order."""
    if asked.kind == "response":
        return [_response(client.responses.create(model="target", **asked.known, extra_body=asked.ours), asked)]
    create = client.completions.create if asked.kind == "completion" else client.chat.completions.create
    reply = create(model="target", **asked.known, extra_body={**asked.ours, "return_token_ids": True})
    texts: dict[int, Text] = {}
    for choice in _choices(reply, asked):
        one = texts.setdefault(choice.index, Text())
        said = choice if asked.kind == "completion" else getattr(choice, "delta", None) or choice.message
        one.text += (said.text if asked.kind == "completion" else said.content) or ""
        for call in getattr(said, "tool_calls", None) or ():
            one.call(call.function)
        one.ids += getattr(choice, "token_ids", None) or ()
        if choice.logprobs is not None:
            listed = choice.logprobs
            one.logprobs += listed.token_logprobs if asked.kind == "completion" else [t.logprob for t in listed.content]
        one.finish = choice.finish_reason or one.finish
    return [texts[index] for index in sorted(texts)]


def _choices(reply: Any, asked: Asked) -> Iterator[Any]:
    if not asked.known.get("stream"):
        yield from reply.choices
        return
    for number, piece in enumerate(reply):
        if asked.leaves is not None and number >= asked.leaves:
            reply.close()
            return
        yield from piece.choices


def _response(reply: Any, asked: Asked) -> Text:
    shown, final = "", reply
    for event in reply if asked.known.get("stream") else ():
        shown += event.delta if event.type == "response.output_text.delta" else ""
        final = getattr(event, "response", final)
    text = Text(text=final.output_text, finish={"completed": "stop", "incomplete": "length"}[final.status])
    assert not asked.known.get("stream") or shown == text.text
    for item in final.output:
        if item.type == "function_call":
            text.call(item)
        elif item.type == "message":
            text.logprobs += [one.logprob for part in item.content for one in part.logprobs]
    return text


def plain(llm: LLM, service: Service, asked: Asked) -> list[Text]:
    """What plain decoding in this process makes of it."""
    body = {name: value for name, value in {**asked.known, **asked.ours}.items() if name != "stream_options"}
    talk: Conversation | None = None
    if asked.kind == "completion":
        read = CompletionRequest.model_validate(body)
        (prompt,), params = read.prompts(), read.params()
    else:
        is_chat = asked.kind == "chat"
        chat = ChatRequest.model_validate(body) if is_chat else ResponsesRequest.model_validate(body).chat()
        talk = converse(service, chat)
        prompt, params = talk.prompt, talk.params
    texts = []
    for out in llm.generate(prompt, params, num_speculative_tokens=0).outputs:
        said = None if talk is None else talk.reader().whole(out.text, out.token_ids)
        calls = [(one.name, one.arguments) for one in said.calls] if said is not None else []
        finish = "tool_calls" if calls and out.finish_reason == "stop" and asked.kind == "chat" else out.finish_reason
        texts.append(
            Text(
                text=out.text if said is None else said.content,
                calls=calls,
                finish=finish,
                ids=[] if asked.kind == "response" else list(out.token_ids),
                logprobs=[one.logprob for one in out.logprobs or ()],
            )
        )
    return texts
