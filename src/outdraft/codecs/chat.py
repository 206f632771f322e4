"""A conversation to one prompt, by the chat template that a model directory carries.

Templates are Jinja2 as Hugging Face writes them (https://huggingface.co/docs/transformers/chat_templating): the
variables `messages`, `tools`, `documents`, `add_generation_prompt` and the special tokens; the functions
`raise_exception` and `strftime_now`; the filter `tojson`. They run in a sandbox.

A model without a template is no chat model. `render_plain` writes a transcript that any language model can continue:

    User: how are you?
    Assistant:

and the answer ends where the model writes the next "User:".
"""

import re
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from outdraft.codecs.control_tokens import ControlTokens, Span
from outdraft.codecs.provenance import MarkedValues
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError, RequestError
from outdraft.options.json_value import read_json
from outdraft.options.shown import shown

_DEVELOPER = re.compile(r"""(['"])developer\1""")  # a template that knows the role compares with its name
_END = "\ue000end of the message\ue001"  # stands behind a message that is to be continued, while it is rendered
Message = Mapping[str, Any]  # {"role": "system" | "user" | "assistant" | ..., "content": str, ...}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """What to encode, and how the answer ends."""

    text: str
    add_special: bool  # False: the template writes the start token itself
    stop: tuple[str, ...] = ()
    own: tuple[Span, ...] | None = None  # the names of tokens that the template wrote; None: all names are tokens


class ChatTemplate:
    """A chat template as Jinja source, compiled once. `tool_use`: another one, for conversations with tools."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, tool_use: "ChatTemplate | None" = None
    ) -> None:
        self.source, self.tool_use = source, tool_use
        self._special = dict(special_tokens)
        from outdraft.codecs.sandbox import compile_template  # jinja2 takes longer to import than a model to load

        self._template = compile_template(source)

    @classmethod
    def from_config(cls, given: Any, special_tokens: Mapping[str, str]) -> "ChatTemplate | None":
        """`chat_template` of tokenizer_config.json: absent, a string, or a list of named ones, of which "default" is
        taken and, for conversations with tools, "tool_use"."""
        tool_use = None
        if given is None or given == []:
            return None
        if isinstance(given, list):
            if not all(isinstance(one, Mapping) and {"name", "template"} <= set(one) for one in given):
                raise ModelLoadError(
                    "chat_template is a list whose entries have no name and template: a text is needed"
                )
            named = {str(entry["name"]): entry["template"] for entry in given}
            if "default" not in named and (len(named) > 1 or "tool_use" in named):
                raise ModelLoadError(
                    f"the chat templates are named {', '.join(map(shown, named))}, and none is 'default': name the one "
                    "so that is to write conversations"
                )
            given = named.get("default", next(iter(named.values())))
            if "tool_use" in named:
                tool_use = cls(str(named["tool_use"]), special_tokens)
        if not isinstance(given, str):
            raise ModelLoadError(f"chat_template={shown(given)} must be a text, or a list of named ones")
        return cls(given, special_tokens, tool_use=tool_use)

    def for_tools(self, tools: object) -> "ChatTemplate":
        """The one that writes a conversation with these tools; None: without any."""
        return self if tools is None or self.tool_use is None else self.tool_use

    def require_used(self, variables: Mapping[str, Any]) -> None:
        """Raise `RequestError` for one that the template does not name."""
        given = [name for name, value in variables.items() if value is not None]
        source = self.for_tools(variables.get("tools")).source
        if unused := [name for name in given if not re.search(rf"\b{re.escape(name)}\b", source)]:
            raise RequestError(f"{unused[0]:.100}: this model's chat template does not use it, so leave it out")

    def render(self, messages: Seq[Message], /, **variables: Any) -> ChatPrompt:
        """The prompt that asks for the next answer. Raises `RequestError` if the template refuses the conversation."""
        given = {**self._special, "tools": None, "documents": None, "add_generation_prompt": True, **variables}
        try:
            text = self.for_tools(given["tools"])._template.render({**given, "messages": [dict(m) for m in messages]})
        except Exception as error:  # a template is a stranger's program
            raise RequestError(f"the chat template refuses this conversation: {error}") from error
        return ChatPrompt(text=text, add_special=False)


def render_plain(messages: Seq[Message]) -> ChatPrompt:
    """The fallback for models without a template: a transcript, with no name before the system's text, and no special
    tokens. What it cannot show is refused."""
    lines = []
    for message in messages:
        for name, value in message.items():
            says_nothing = value is None or (isinstance(value, str | list) and not value)
            if name not in ("role", "content") and not says_nothing:
                raise RequestError(
                    f"{name}={shown(value)} of a message is for a chat template, and the model has none: leave "
                    "it out, since a plain transcript shows role and content alone"
                )
        if missing := {"role", "content"} - set(message):
            raise RequestError(f"a message has a role and its content; {shown(dict(message))} lacks {sorted(missing)}")
        role = check_value("role", message["role"], str, of="a message", error=RequestError)
        content = check_value("content", message["content"], str, of="a message", error=RequestError)
        lines.append(f"{content}\n" if role == "system" else f"{role.capitalize()}: {content}")
    return ChatPrompt(text="\n".join([*lines, "Assistant:"]), add_special=True, stop=("\nUser:",))


def render_chat(
    template: ChatTemplate | None,
    messages: Seq[Message],
    variables: Mapping[str, Any] | None = None,
    *,
    control: ControlTokens | None = None,
    continue_final_message: bool = False,
) -> ChatPrompt:
    """By the template if the model has one, else as a plain transcript. `variables`: of the template, as `tools`.
    Messages are as OpenAI's clients write them.

    `continue_final_message`: the prompt ends within the last message, which is the beginning of the answer.
    `control`: the model's; a name of one in messages and variables is text. None: it is a token wherever it stands.
    """
    if not isinstance(messages, list | tuple) or not all(isinstance(one, Mapping) for one in messages):
        raise RequestError(f"messages={shown(messages)} must be a list of tables, each with a role and its content")
    if not messages:
        raise RequestError("the conversation is empty: give at least one message")
    given = {name: value for name, value in (variables or {}).items() if value is not None}
    if "messages" in given:
        raise RequestError("messages is the conversation itself, and no variable of the chat template: leave it out")
    source = "" if template is None else template.for_tools(given.get("tools")).source
    messages = [_readable(one, knows_developer=_DEVELOPER.search(source) is not None) for one in messages]
    if control is None:
        return _written(template, messages, given, continue_final_message=continue_final_message)
    found: list[ChatPrompt] = []

    def render(changed: Mapping[str, Any]) -> str:
        asked, own = changed["messages"], {name: changed[name] for name in given}
        found.append(_written(template, asked, own, continue_final_message=continue_final_message))
        return found[-1].text

    try:
        sources = "" if template is None else template.source + template.for_tools(()).source
        apart = MarkedValues(control, {**given, "messages": messages}, sources)
        text, own = apart.write(render)
    except RecursionError as error:
        raise RequestError("the messages, or what stands beside them, are nested too deeply") from error
    return replace(found[-1], text=text, own=own)


def _readable(message: Message, *, knows_developer: bool) -> Message:
    """As templates read it: nothing that is None, the arguments of calls as tables, which templates write as JSON, and
    a developer as the system where the template would drop it, or show it without a role."""
    told = {name: value for name, value in message.items() if value is not None}
    if told.get("role") == "developer" and not knows_developer:
        told["role"] = "system"
    if isinstance(calls := told.get("tool_calls"), list | tuple) and calls:
        told["tool_calls"] = [_with_table(call) for call in calls]
        told.setdefault("content", "")
    return told


def _with_table(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(text := function.get("arguments"), str):
        return call
    if not isinstance(read := read_json(text or "{}"), dict):
        name = shown(function.get("name"))
        raise RequestError(f"messages: the arguments of {name} are no JSON object: {text!r:.80}")
    return {**call, "function": {**function, "arguments": read}}


def _written(
    template: ChatTemplate | None, messages: Seq[Message], given: Mapping[str, Any], *, continue_final_message: bool
) -> ChatPrompt:
    if template is None:
        if named := [*given, *(["continue_final_message"] if continue_final_message else [])]:
            raise RequestError(f"{named[0]:.100}= is for a chat template, and the model has none")
        return render_plain(messages)
    return _continued(template, messages, given) if continue_final_message else template.render(messages, **given)


def _continued(template: ChatTemplate, messages: Seq[Message], given: Mapping[str, Any]) -> ChatPrompt:
    """Up to the last character of the last message, whatever the template writes behind it."""
    *before, last = messages
    content = last.get("content")
    if last.get("role") != "assistant" or not isinstance(content, str) or not content:
        raise RequestError("continue_final_message needs a last message of the role assistant, with a text to continue")
    marked = [*before, {**last, "content": content + _END}]
    asked = template.render(marked, **{**given, "add_generation_prompt": False})
    text, mark, _ = asked.text.rpartition(_END)
    if not mark:
        raise RequestError("continue_final_message: the chat template does not show the last message as it is")
    return ChatPrompt(text=text, add_special=asked.add_special)
