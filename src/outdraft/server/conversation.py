"""A conversation as the engine takes it, and how its answers are read.

messages, tools ... -> chat template -> prompt      what binds the answer -> SamplingParams
text of the answer  -> MessageReader -> reasoning, content, calls
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from outdraft.codecs.chat import ChatPrompt, ChatTemplate, Message, render_chat
from outdraft.codecs.parts import PromptParts
from outdraft.codecs.text import TextCodec
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.callers.result import Result
from outdraft.options.errors import ModelLoadError, RequestError
from outdraft.options.params import SamplingParams
from outdraft.options.shown import shown
from outdraft.server.errors import ApiError, clean, told, wrong_field
from outdraft.server.grammar import ToolsAsked, bound, tools_asked
from outdraft.server.parsers.message import MessageReader, Thoughts, special_marks
from outdraft.server.parsers.thinking import ReasoningFormat, ThinkingReader
from outdraft.server.schema.chat import ChatRequest
from outdraft.server.service import Service

_RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What to ask the engine, and how to read what it writes."""

    prompt: Prompt
    params: SamplingParams
    codec: TextCodec
    text: str  # the prompt's
    message: str | None  # that the answer goes on with
    tools: ToolsAsked | None
    reasoning: ReasoningFormat | None
    marks: dict[int, str]  # special tokens that the readers need, id to text

    def reader(self) -> MessageReader:
        tools = self.tools
        calls = None if tools is None else tools.format.reads(tools.names, opened=bool(tools.opening))
        many = tools is None or tools.many
        return MessageReader(self.codec, marks=self.marks, thinking=self._thinking(), calls=calls, many=many)

    def num_reasoning_tokens(self, results: Seq[Result]) -> int:
        if self.reasoning is None:
            return 0
        texts = [text for one in results for text in one.outputs]
        return sum(sum(chain.from_iterable(map(self.thoughts().push, text.token_ids))) for text in texts)

    def thoughts(self) -> Thoughts:
        """For one answer: which of its tokens are a thought."""
        return Thoughts(self.codec, self.marks, self._thinking())

    def _thinking(self) -> ThinkingReader | None:
        return None if self.reasoning is None else self.reasoning.reader(self.text, self.message)


def converse(service: Service, body: ChatRequest) -> Conversation:
    """Raises `ApiError` or `RequestError` for a conversation that cannot be asked."""
    codec, formats = service.codec, service.formats
    _refuse_unknown(body, service.llm.prompt_parts)
    tools = tools_asked(body, formats.tools)
    written = formats.tools
    taken = service.llm.prompt_parts.take([one.told(written.call_id if written else None) for one in body.messages])
    asked = _render(service, body, tools, taken.messages)
    begun = _opened(asked, tools.opening, codec) if tools is not None and tools.opening else asked
    service.reading.check(begun.text, codec, "messages")
    message = taken.messages[-1]["content"] if body.continue_final_message else None
    thinking = None if formats.reasoning is None else formats.reasoning.reader(asked.text, message)
    with body.told_by_field():
        form = bound(tools, body.form(), thinking, body.form_field)
    named = [*(tools.format.marks if tools else ()), *(formats.reasoning.marks if formats.reasoning else ())]
    return Conversation(
        prompt=taken.encode(codec, begun),
        params=body.params(asked.stop, structured_outputs=form),
        codec=codec,
        text=asked.text,
        message=message,
        tools=tools,
        reasoning=formats.reasoning,
        marks=special_marks(codec, named),
    )


def _opened(asked: ChatPrompt, mark: str, codec: TextCodec) -> ChatPrompt:
    """With the mark that begins a call behind it, as if the template had written it."""
    size = len(asked.text)
    own = asked.own if asked.own is None or mark not in codec.control.ids else (*asked.own, (size, size + len(mark)))
    return replace(asked, text=asked.text + mark, own=own)


def _refuse_unknown(body: ChatRequest, parts: PromptParts) -> None:
    """Raise `ApiError` for a part that nothing reads here."""
    for i, message in enumerate(body.messages):
        for j, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if part.type not in parts.known:
                place = f"messages.{i}.content.{j}"
                told = f"{place}={shown(part.model_dump())}: {parts.refusal(part.type, 'server')}"
                raise wrong_field(told, place, code="invalid_value")


def _render(service: Service, body: ChatRequest, tools: ToolsAsked | None, messages: Seq[Message]) -> ChatPrompt:
    variables, template = _variables(body, tools), _template(service, body)
    control = None if _holds_tokens(service, body) else service.codec.control
    try:
        if template is not None:
            template.require_used(variables)
        goes_on = body.continue_final_message
        return render_chat(template, messages, variables, control=control, continue_final_message=goes_on)
    except RequestError as error:
        raise _placed(told(error), body) from error


def _placed(error: ApiError, body: ChatRequest) -> ApiError:
    """With the place of what it is about: a variable of the template, another field, or else the messages."""
    for name in body.chat_template_kwargs or ():
        if error.message.startswith((f"{name:.100}:", f"{name:.100}=")):
            place = "chat_template_kwargs"
            return wrong_field(f"{place}.{error.message}", f"{place}.{name:.100}")
    return error if error.param in ChatRequest.model_fields else wrong_field(error.message, "messages")


def _holds_tokens(service: Service, body: ChatRequest) -> bool:
    """Whether the name of a control token in a message is that token."""
    allowed, asked = service.settings.special_tokens_in_messages, body.special_tokens_in_messages
    if asked and allowed == "never":
        raise wrong_field(
            "special_tokens_in_messages: messages are text alone here, unless the server's operator allows it with "
            "--special-tokens-in-messages asked"
        )
    return allowed == "always" if asked is None else asked


def _variables(body: ChatRequest, tools: ToolsAsked | None) -> dict[str, Any]:
    """Of the template; none that was not asked for."""
    variables = dict(body.chat_template_kwargs or {})
    if taken := [name for name in variables if name in _RESERVED]:
        raise wrong_field(f"chat_template_kwargs holds {taken[0]}, which is a field of the request")
    if body.reasoning_effort is not None:
        variables["reasoning_effort"] = body.reasoning_effort
    if tools is not None:
        variables["tools"] = [tool.told() for tool in body.tools or ()]
    if body.continue_final_message and "add_generation_prompt" in body.model_fields_set and body.add_generation_prompt:
        raise wrong_field(
            "continue_final_message goes on with the last message, and add_generation_prompt begins a new one: leave "
            "one out"
        )
    if not body.add_generation_prompt and not body.continue_final_message:
        variables["add_generation_prompt"] = False
    return variables


def _template(service: Service, body: ChatRequest) -> ChatTemplate | None:
    """The model's, or the request's own where the operator allows it."""
    if body.chat_template is None:
        return service.codec.chat_template
    if not service.settings.trust_request_chat_template:
        raise wrong_field(
            "chat_template: this server takes no template from a request, unless its operator allows it with "
            "--trust-request-chat-template"
        )
    try:
        return ChatTemplate(body.chat_template, service.codec.special_tokens)
    except ModelLoadError as error:
        raise wrong_field(f"chat_template: {clean(error)}") from error
