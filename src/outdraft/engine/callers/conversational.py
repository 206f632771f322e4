"""Further methods of `LLM`: `chat`, the tokenizer, `forget` and `close`."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any, Self, overload

from outdraft.codecs.chat import Message, render_chat
from outdraft.codecs.codec import Codec, text_codec
from outdraft.codecs.parts import PromptParts
from outdraft.codecs.text import TextCodec
from outdraft.core.drafter import forget
from outdraft.core.one_process import OneProcess
from outdraft.engine.callers.prompts import Prompt, PromptReader, one_of, read_settings
from outdraft.engine.callers.result import Result, all_whole
from outdraft.engine.callers.thread import EngineThread
from outdraft.engine.loop import Engine
from outdraft.options.checked import check_value
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams

_BESIDE: dict[str, Any] = {  # what stands beside the variables of a template
    "tools": Seq[Mapping[str, Any]] | None,
    "chat_template_kwargs": Mapping[str, Any] | None,
    "add_generation_prompt": bool,
    "continue_final_message": bool,
    "special_tokens_in_messages": bool,
}


class Conversational(OneProcess):
    """The base of `LLM`, which sets its fields and writes the texts."""

    codec: Codec[Any] | None  # of its ids: a tokenizer, or a codec of something else that was given
    engine: Engine
    _prompts: PromptReader
    _thread: EngineThread

    def generate(self, prompts: Any, params: Any = None, **words: Any) -> Any:
        """Complete prompts: see `LLM.generate`."""
        raise NotImplementedError  # `LLM` writes the texts

    @overload
    def chat(
        self,
        messages: Seq[Message],
        params: SamplingParams | None = None,
        *,
        sampling_params: SamplingParams | None = None,
        use_tqdm: bool | None = None,
        tools: Seq[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        special_tokens_in_messages: bool = False,
        **per_request: Any,
    ) -> Result: ...
    @overload
    def chat(
        self,
        messages: Seq[Seq[Message]],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        *,
        sampling_params: SamplingParams | Seq[SamplingParams] | None = None,
        use_tqdm: bool | None = None,
        tools: Seq[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        special_tokens_in_messages: bool = False,
        **per_request: Any,
    ) -> list[Result]: ...
    def chat(
        self,
        messages: Any,
        params: Any = None,
        *,
        sampling_params: Any = None,
        use_tqdm: Any = None,
        tools: Any = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Any = None,
        special_tokens_in_messages: bool = False,
        **per_request: Any,
    ) -> Any:
        """The next answer of a conversation [{"role": "user", "content": "..."}, ...], or of several.

        By the model's chat template; a model without one continues a plain transcript. `continue_final_message`: the
        answer goes on with the last message, of the assistant. `chat_template_kwargs`: further variables of the
        template, as `enable_thinking`. The name of a control token in a message (<|im_end|>) is text, unless
        `special_tokens_in_messages`. The rest as for `generate`.
        Raises `RequestError` for what is no conversation, or a model without a tokenizer.
        """
        many = isinstance(messages, list | tuple) and bool(messages) and isinstance(messages[0], list | tuple)
        given = {
            "tools": tools,
            "chat_template_kwargs": chat_template_kwargs,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "special_tokens_in_messages": special_tokens_in_messages,
        }
        for name, hint in _BESIDE.items():
            check_value(name, given[name], hint, error=RequestError)
        variables = dict(chat_template_kwargs or {})
        if wrong := [name for name in variables if name in _BESIDE]:
            raise RequestError(f"chat_template_kwargs holds {wrong[0]}, which stands beside it: give it there")
        variables["tools"] = tools or None
        if not add_generation_prompt and not continue_final_message:
            variables["add_generation_prompt"] = False
        words = {"continue_final_message": continue_final_message, "as_tokens": special_tokens_in_messages}
        asked = [conversation(self._prompts, one, variables, **words) for one in (messages if many else [messages])]
        settings = read_settings(one_of(params, sampling_params), len(asked))
        stopped = [replace(one, stop=(*one.stop, *stop)) for one, (_, stop) in zip(settings, asked, strict=True)]
        results = self.generate([prompt for prompt, _ in asked], stopped, use_tqdm=use_tqdm, **per_request)
        return results if many else all_whole(results)[0]

    def forget(self) -> None:
        """Drop what is left of requests that are over, in drafters and in memory: a repeated prompt begins anew."""

        def drop(engine: Engine) -> None:
            forget(engine.parts.drafter)
            engine.parts.room.forget()

        self._thread.ask(drop)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt in any of its forms. Raises `RequestError` if it is none."""
        return self._prompts.encode(prompt)

    def get_tokenizer(self) -> TextCodec:
        """The target's tokenizer: `encode`, `decode`, `apply_chat_template`. Raises `RequestError` if it has none."""
        return tokenizer_of(self._prompts, "a tokenizer")

    @property
    def prompt_parts(self) -> PromptParts:
        """What reads parts of messages that are not text, as `image_url`: none, until some are registered."""
        return self._prompts.parts

    @property
    def tokenizer(self) -> TextCodec | None:
        """Likewise; None where it has none."""
        return self.codec if isinstance(self.codec, TextCodec) else None

    def close(self) -> None:
        """End its thread: requests under way end with an error, later ones are refused. Engines beside it go on."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def conversation(
    reader: PromptReader,
    messages: Seq[Message],
    variables: Mapping[str, Any] | None = None,
    *,
    continue_final_message: bool = False,
    as_tokens: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Messages as a prompt, by the model's chat template, and the stop strings of its answer. `as_tokens`: the name of
    a control token in a message is that token."""
    codec = tokenizer_of(reader, "a conversation", " to chat")
    control = None if as_tokens else codec.control
    if codec.chat_template is not None:
        codec.chat_template.require_used(variables or {})
    taken = reader.parts.take(messages)
    asked = render_chat(
        codec.chat_template, taken.messages, variables, control=control, continue_final_message=continue_final_message
    )
    return taken.encode(codec, asked), asked.stop


def tokenizer_of(reader: PromptReader, wanted: str, purpose: str = "") -> TextCodec:
    """The model's own. Raises `RequestError` where it has none, or a codec of something else."""
    codec = text_codec(reader.codec, wanted)
    if not isinstance(codec, TextCodec):
        raise RequestError(f"{reader.name} has no tokenizer.json: put the model's own beside it{purpose}")
    return codec
