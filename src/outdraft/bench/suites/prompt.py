"""One thing to ask: a text to continue, or the user's turns of a conversation."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.codecs.chat import render_chat
from outdraft.codecs.text import TextCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`name` is unique in its suite. `chat`: the turns are a user's words, else the one turn is text to continue."""

    suite: str
    name: str
    category: str
    turns: tuple[str, ...]
    chat: bool = False
    references: tuple[str, ...] = ()  # texts that the answer may copy from; never the answer itself


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompt:
    """What the engine is given: ids, and the texts that end the answer."""

    ids: tuple[int, ...]
    stop: tuple[str, ...] = ()
    references: tuple[tuple[int, ...], ...] = ()


def ask(codec: TextCodec, prompt: Prompt, messages: Seq[Mapping[str, str]]) -> AskedPrompt:
    """The prompt after `messages`, by the model's chat template where the turns are a conversation."""
    references = tuple(tuple(codec.encode(text, add_special=False)) for text in prompt.references)
    if not prompt.chat:
        return AskedPrompt(ids=tuple(codec.encode(messages[-1]["content"])), references=references)
    rendered = render_chat(codec.chat_template, messages, control=codec.control)
    return AskedPrompt(ids=tuple(codec.encode_chat(rendered)), stop=rendered.stop, references=references)
