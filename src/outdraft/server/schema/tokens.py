"""`POST /tokenize`, `/detokenize` and `/inference/v1/generate`: token ids in place of text, as vLLM has them.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from typing import Annotated

from pydantic import Field

from outdraft.options.limits import MOST_IDS
from outdraft.options.params import SamplingParams
from outdraft.server.errors import wrong_field
from outdraft.server.schema.base import JsonTable, Name
from outdraft.server.schema.chat import ChatRequest, Message, Tool
from outdraft.server.schema.conversation_size import Counted, FewTools, Template, Variables
from outdraft.server.schema.sampling import AskFields, SamplingFields, StreamOptions

_Ids = list[Annotated[int, Field(ge=0)]]
_BESIDE = ("stream_options", "return_draft_tree", *AskFields.model_fields)


class TokenizeRequest(JsonTable):
    """A text, or a conversation."""

    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1), Counted] | None = None
    add_special_tokens: bool | None = None  # the model's start token; by default with a text, where it has one
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: Template | None = None
    chat_template_kwargs: Variables | None = None
    special_tokens_in_messages: bool | None = None
    tools: Annotated[list[Tool], FewTools] | None = None
    return_token_strs: bool = False

    def conversation(self) -> ChatRequest | None:
        """The conversation, if it is one. Raises `ApiError` where both are given, or neither."""
        if (self.prompt is None) == (self.messages is None):
            raise wrong_field("send one of prompt and messages: the text, or the conversation, to be read", "prompt")
        of_a_chat = [name for name in ChatRequest.model_fields if name in self.model_fields_set - {"model", "messages"}]
        given = {name: getattr(self, name) for name in of_a_chat}
        wrong = next(iter(given if self.messages is None else {"add_special_tokens"} & self.model_fields_set), None)
        if wrong is not None:
            raise wrong_field(
                f"{wrong} is for {'messages' if self.messages is None else 'a prompt'}: leave it out", wrong
            )
        return None if self.messages is None else ChatRequest(messages=self.messages, **given)


class DetokenizeRequest(JsonTable):
    """Token ids that are to be written as text."""

    model: Name | None = None
    tokens: Annotated[_Ids, Field(max_length=MOST_IDS)]
    skip_special_tokens: bool = False


class TokenSampling(SamplingFields):
    """How the tokens are chosen: the settings of /v1/completions."""

    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


SETTINGS = tuple(name for name in TokenSampling.model_fields if name not in _BESIDE)  # what stands in sampling_params


class GenerateRequest(AskFields):
    """A prompt of token ids, and how it goes on."""

    token_ids: Annotated[_Ids, Field(min_length=1)]
    sampling_params: TokenSampling = Field(default_factory=TokenSampling)
    stream_options: StreamOptions | None = None
    return_draft_tree: bool | None = False

    def sampling(self) -> TokenSampling:
        """All settings in one. Raises `ApiError` for what stands in the wrong table."""
        inner = self.sampling_params
        for name in _BESIDE:
            if name in inner.model_fields_set:
                raise wrong_field(
                    f"sampling_params.{name} is no sampling setting: send it beside sampling_params, or leave it out",
                    f"sampling_params.{name}",
                )
        if "return_token_ids" in inner.model_fields_set:
            raise wrong_field(
                "sampling_params.return_token_ids: token ids are always given here, so leave it out",
                "sampling_params.return_token_ids",
            )
        outer = {name: getattr(self, name) for name in _BESIDE if name in self.model_fields_set}
        return inner.model_copy(update=outer)

    def params(self) -> SamplingParams:
        """Raises `ApiError` or `RequestError` for what does not go together."""
        asked = self.sampling()
        return asked.sampling(max_tokens=asked.in_force("max_tokens"), logprobs=asked.logprobs)
