"""What each field of each request does: the rows of `test_every_field.py`. A field without a row is a failure there.

used       the reply differs from the one to the same request without it
refused    status 400 (404 for a model) that names it
accepted   the reply is the same: the short list of docs/server.md
label      the reply is the same: it names something for the client
engine     `LLM.open` gets another argument; what it does needs a queue or a second request to be seen
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.server.chatty import CLOCK, WEATHER

Body = Mapping[str, Any]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
LETTERS = {"298": 60}  # token 298, " th", is all that is written
SHOWS = "{% for m in messages %}{{ m | tojson }}{% endfor %}{{ tools | tojson }}"
PLAIN = {"stream": True, "speculative": False}  # a chunk for each token
EFFORT = "{{ messages[0].content }}{{ reasoning_effort }}"
FORM = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
USER = {"role": "user", "content": "Hello"}
CALLING = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
FUNCTION = {"type": "function", "name": "weather", **WEATHER["function"]}
INCLUDE = ["message.output_text.logprobs"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """`without` and `given`: what is added to the endpoint's own request. `says`: words of a refusal."""

    kind: Literal["used", "refused", "accepted", "label", "engine"]
    given: Body
    without: Body = field(default_factory=dict)
    says: str = ""
    shows: Callable[[Any], Any] | None = None  # what of the reply differs; None: any of what is the same each time
    at: str = ""  # the endpoint, of a row of a table within a request


def used(name: str, value: Any, *, shows: Callable[[Any], Any] | None = None, **beside: Any) -> Row:
    return Row(kind="used", given={**beside, name: value}, without=beside, shows=shows)


def refused(name: str, value: Any, says: str, **beside: Any) -> Row:
    return Row(kind="refused", given={**beside, name: value}, without=beside, says=says)


def accepted(name: str, value: Any) -> Row:
    return Row(kind="accepted", given={name: value})


def engine(name: str, value: Any) -> Row:
    return Row(kind="engine", given={name: value})


def _drafted(reply: Any) -> Any:
    return reply["metrics"]["speculative_decoding"]["num_draft_tokens"]


_COPY = " th" * 12
_DRAFTS = {"speculative": {"method": "llma", "num_speculative_tokens": 4, "policy": "fixed"}, "logit_bias": LETTERS}
_FEW = {"allowed_token_ids": list(range(290, 298)), "top_k": 3}
_NO_METHOD = {"method": "eagle3"}

WRITING: dict[str, Row | tuple[Row, ...]] = {  # of all endpoints that write
    "model": (used("model", "other"), refused("model", "gpt", "not served here")),
    "temperature": (used("temperature", 0), refused("temperature", -1, "greater than or equal to 0")),
    "top_p": used("top_p", 0.05),
    "top_k": used("top_k", 1),
    "min_p": used("min_p", 0.9),
    "typical_p": used("typical_p", 0.05),
    "seed": used("seed", 2),
    "min_tokens": used("min_tokens", 4, logit_bias={"0": 60}),
    "stop": used("stop", "two", forced_prefix="one two three"),
    "stop_token_ids": used("stop_token_ids", [298], logit_bias=LETTERS),
    "ignore_eos": used("ignore_eos", True, logit_bias={"0": 60}),
    "logit_bias": (used("logit_bias", LETTERS), refused("logit_bias", {"a": 1}, "token ids")),
    "banned_token_ids": used("banned_token_ids", [298], logit_bias=LETTERS),
    "allowed_token_ids": used("allowed_token_ids", [298, 300]),
    "bad_words": used("bad_words", [" th"], logit_bias=LETTERS),
    "forced_prefix": used("forced_prefix", "one two"),
    "repetition_penalty": used("repetition_penalty", 1e6, logit_bias={"298": 30}),
    "presence_penalty": used("presence_penalty", 2, **_FEW),
    "frequency_penalty": used("frequency_penalty", 2, **_FEW),
    "guidance_scale": used("guidance_scale", 4),
    "negative_prompt": used("negative_prompt", "No, never", guidance_scale=4),
    "structured_outputs": used("structured_outputs", {"choice": ["yes"]}),
    "references": used("references", [_COPY], shows=_drafted, **_DRAFTS),
    "speculative": (
        used("speculative", False, shows=lambda reply: reply["speculative"]),
        refused("speculative", _NO_METHOD, "not held here"),
    ),
    "priority": engine("priority", 3),
    "timeout": used("timeout", 1e-6),
    "cache_salt": engine("cache_salt", "mine"),
    "adapt": engine("adapt", False),
    "resume_token_ids": used("resume_token_ids", [[298, 300]]),
    "request_id": used("request_id", "mine", shows=lambda reply: "mine" in str(reply)),
    "stream": used("stream", True),
    "stream_interval": (used("stream_interval", 3, **PLAIN), refused("stream_interval", 3, "needs stream")),
    "user": accepted("user", "me"),
    "metadata": accepted("metadata", {"a": "b"}),
    "service_tier": accepted("service_tier", "flex"),
    "safety_identifier": accepted("safety_identifier", "me"),
    "prompt_cache_key": accepted("prompt_cache_key", "mine"),
    # of completions, chats and token ids
    "n": used("n", 2),
    "response_format": used("response_format", {"type": "json_object"}),
    "prompt_logprobs": used("prompt_logprobs", 1),
    "return_token_ids": used("return_token_ids", True),
    "return_draft_tree": used("return_draft_tree", True),
    "stream_options": (
        used("stream_options", {"include_usage": True}, **PLAIN),
        refused("stream_options", {"include_usage": True}, "is for a stream"),
    ),
}

_TWO = {"tools": [WEATHER], "forced_prefix": f"{CALL}\n{CALL}", "max_tokens": 90}
_THERE = {"messages": [USER, {"role": "assistant", "content": "It was"}]}
ONLY: dict[str, Row | tuple[Row, ...]] = {  # of one endpoint; it goes before what all have
    "completions.prompt": (used("prompt", "The house"), refused("prompt", [], "is empty")),
    "completions.max_tokens": (used("max_tokens", 3), refused("max_tokens", 0, "writes nothing")),
    "completions.logprobs": used("logprobs", 1),
    "completions.echo": used("echo", True),
    "completions.best_of": refused("best_of", 3, "differs from n"),
    "chat.messages": used("messages", [{"role": "user", "content": "Tell me about the old king and his three sons."}]),
    "chat.max_tokens": used("max_tokens", 3),
    "chat.max_completion_tokens": used("max_completion_tokens", 3),
    "chat.logprobs": used("logprobs", True),
    "chat.top_logprobs": (used("top_logprobs", 2, logprobs=True), refused("top_logprobs", 2, "needs logprobs")),
    "chat.tools": used("tools", [WEATHER]),
    "chat.tool_choice": (
        used("tool_choice", "required", tools=[WEATHER]),
        refused("tool_choice", "required", "needs tools"),
    ),
    "chat.parallel_tool_calls": used("parallel_tool_calls", False, **_TWO),
    "chat.prediction": used("prediction", {"type": "content", "content": _COPY}, shows=_drafted, **_DRAFTS),
    "chat.reasoning_effort": (
        used("reasoning_effort", "low", chat_template=EFFORT, chat_template_kwargs={}),
        refused("reasoning_effort", "low", "does not use it"),
    ),
    "chat.chat_template": used("chat_template", "{{ messages[0].content }}", chat_template_kwargs={}),
    "chat.chat_template_kwargs": (
        used("chat_template_kwargs", {}),
        refused("chat_template_kwargs", {"tools": []}, "a field of the request"),
    ),
    "chat.special_tokens_in_messages": refused("special_tokens_in_messages", True, "--special-tokens-in-messages"),
    "chat.add_generation_prompt": used("add_generation_prompt", False),
    "chat.continue_final_message": used("continue_final_message", True, **_THERE),
    "chat.store": (accepted("store", False), refused("store", True, "nothing is stored")),
    "responses.input": used("input", "Tell me about the old king and his three sons."),
    "responses.instructions": used("instructions", "Be kind."),
    "responses.max_output_tokens": used("max_output_tokens", 3),
    "responses.client_metadata": accepted("client_metadata", {"a": "b"}),
    "responses.text": used("text", {"format": {"type": "json_object"}}),
    "responses.tools": used("tools", [FUNCTION]),
    "responses.tool_choice": used("tool_choice", "required", tools=[FUNCTION]),
    "responses.parallel_tool_calls": used(
        "parallel_tool_calls", False, tools=[FUNCTION], forced_prefix=_TWO["forced_prefix"], max_output_tokens=90
    ),
    "responses.reasoning": refused("reasoning", {"effort": "low"}, "does not use it"),
    "responses.include": used("include", INCLUDE),
    "responses.top_logprobs": (used("top_logprobs", 2, include=INCLUDE), refused("top_logprobs", 2, "needs include")),
    "responses.chat_template_kwargs": used("chat_template_kwargs", {}),
    "responses.special_tokens_in_messages": refused("special_tokens_in_messages", True, "--special-tokens-in-messages"),
    "responses.stream_options": refused("stream_options", {"include_obfuscation": True}, "no padding"),
    "responses.truncation": refused("truncation", "auto", "never cut"),
    "responses.background": refused("background", True, "written at once"),
    "responses.store": (accepted("store", False), refused("store", True, "nothing is stored")),
    "generate.token_ids": used("token_ids", [298, 300]),
    "generate.sampling_params": used("sampling_params", {"max_tokens": 3}),
    "sampling.max_tokens": used("max_tokens", 3),
    "sampling.logprobs": used("logprobs", 1),
    "sampling.return_token_ids": refused("return_token_ids", True, "token ids are always given"),
    **{
        f"sampling.{name}": refused(name, value, "no sampling setting")
        for name, value in {
            "model": "target",
            "references": ["a"],
            "speculative": False,
            "priority": 1,
            "timeout": 1.0,
            "cache_salt": "a",
            "resume_token_ids": [[1]],
            "request_id": "a",
            "stream": True,
            "stream_interval": 1,
            "stream_options": {},
            "return_draft_tree": True,
            "user": "me",
            "metadata": {},
            "service_tier": "auto",
            "safety_identifier": "a",
            "prompt_cache_key": "a",
        }.items()
    },
    "tokenize.model": refused("model", "gpt", "not served here"),
    "tokenize.prompt": used("prompt", "The house"),
    "tokenize.messages": refused("messages", [USER], "send one of"),
    "tokenize.add_special_tokens": Row(
        kind="refused", given={"prompt": None, "messages": [USER], "add_special_tokens": True}, says="is for a prompt"
    ),
    "tokenize.return_token_strs": used("return_token_strs", True),
    "detokenize.model": refused("model", "gpt", "not served here"),
    "detokenize.tokens": (used("tokens", [300]), refused("tokens", [10**6], "knows ids below")),
    "detokenize.skip_special_tokens": used("skip_special_tokens", True),
}
_TALK = {"prompt": None, "messages": [USER]}
ONLY["tokenize.special_tokens_in_messages"] = refused(
    "special_tokens_in_messages", True, "--special-tokens-in-messages", **_TALK
)
ONLY |= {
    f"tokenize.{name}": used(name, value, **{**_TALK, **beside})
    for name, value, beside in (
        ("add_generation_prompt", False, {}),
        ("continue_final_message", True, _THERE),
        ("tools", [CLOCK], {}),
        ("chat_template", "{{ messages[0].content }}", {}),
        ("chat_template_kwargs", {"enable_thinking": False}, {}),
    )
}
