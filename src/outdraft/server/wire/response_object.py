"""What a response says of its request, and its usage, in the words of the Responses API."""

from typing import Any

from outdraft.server.schema.responses import ResponsesRequest, TextFormat

_SAME = ("instructions", "max_output_tokens", "temperature", "top_p", "user", "safety_identifier", "prompt_cache_key")


def as_asked(body: ResponsesRequest) -> dict[str, Any]:
    """The settings, with what was in force where the request says nothing."""
    form = None if body.text is None else body.text.format
    choice = body.tool_choice or "auto"
    return {
        **{name: body.in_force(name) for name in _SAME},
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
        "text": {"format": {"type": "text"} if form is None else _format(form)},
        "tools": [tool.model_dump() for tool in body.tools or ()],
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "background": False,
        "store": False,
        "previous_response_id": None,
        "service_tier": "default",
    }


def _format(form: TextFormat) -> dict[str, Any]:
    return form.model_dump(by_alias=True, exclude_none=True)


def response_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """A chat's usage under this API's names."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }
