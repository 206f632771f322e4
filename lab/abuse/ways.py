"""How each field of a request grows. What has finitely many values needs no line here; everything else does.

A line of `*.NAME` holds for every table with such a field that has no line of its own. `tests/lab/test_ways.py` fails
for a field without a line, and for a line without a field.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lab.abuse import grow
from lab.abuse.fields import Field
from lab.abuse.grow import COUNT, EXPONENT, IDS, KEYS, LENGTH, LEVELS, NAME, POWER, SHARE, TEXTS, Way
from lab.abuse.places import SCHEMA

_BIAS = Way(how="count", make=lambda size: {str(5 + i): 1.0 for i in range(size)}, first=4, most=1 << 19)
_NUMBERS = (COUNT, EXPONENT)
_GUIDED = {"guidance_scale": 2.0}
_REGEX = (
    Way(how="length", make=lambda size: "(ab|cd)" * (size // 7 + 1), first=64),
    Way(how="repetitions", make=lambda size: f"x{{{size}}}", most=1 << 24),
    Way(how="repetitions in repetitions", make=lambda size: f"((ab|c){{{size}}}){{{size}}}", most=1 << 12),
    Way(how="nesting", make=lambda size: "(" * size + "a" + ")" * size, first=4, most=1 << 20),
    Way(how="classes", make=lambda size: r"\p{L}" * size, first=1, most=1 << 17),
    Way(how="branches", make=lambda size: "|".join(f"{i}x" for i in range(size)), first=4, most=1 << 18),
)
_SCHEMA = (
    Way(how="count", make=grow.schema_of, first=4, most=1 << 17),
    Way(how="nesting", make=grow.deep_schema, first=4, most=1 << 12),
    Way(how="enum", make=grow.enum_schema, first=4, most=1 << 19),
    Way(how="length it asks for", make=grow.long_schema, most=1 << 24),
    Way(how="entries it asks for", make=grow.many_schema, most=1 << 24),
    Way(how="repetitions of a pattern", make=grow.pattern_schema, most=1 << 24),
)
_GRAMMAR = (
    Way(how="length", make=lambda size: "start: " + '"ab" ' * (size // 5 + 1), first=64),
    Way(
        how="rules",
        make=lambda size: "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(size)) + f'r{size}: "x"',
        first=4,
        most=1 << 17,
    ),
    Way(how="repetitions", make=lambda size: f"start: /x{{{size}}}/", most=1 << 24),
    Way(how="branches of an ambiguous rule", make=lambda size: f"start: e\ne: {'e ' * size}| /./", most=1 << 12),
)
_MESSAGES = Way(how="count", make=lambda size: [{"role": "user", "content": "a"}] * size, first=4, most=1 << 18)
_PARTS = Way(how="parts", make=lambda size: [{"type": "text", "text": "a"}] * size, first=4, most=1 << 18)
_TOOLS = Way(
    how="count",
    first=4,
    most=1 << 17,
    make=lambda size: [{"type": "function", "function": {"name": f"f{i}"}} for i in range(size)],
)
_CALLS = Way(
    how="count",
    first=4,
    most=1 << 16,
    make=lambda size: [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(size)
    ],
)
_TEXT_PARTS = replace(_PARTS, make=lambda size: [{"type": "input_text", "text": "a"}] * size)
_FUNCTIONS = replace(_TOOLS, make=lambda size: [{"type": "function", "name": f"f{i}"} for i in range(size)])
_THOUGHTS = Way(how="count", make=lambda size: [{"type": "summary_text", "text": "a"}] * size, first=4, most=1 << 17)
_ITEMS = Way(
    how="count", make=lambda size: [{"type": "message", "role": "user", "content": "a"}] * size, first=4, most=1 << 17
)
_KWARGS = (  # the template reads `style`
    Way(how="length", make=lambda size: {"style": grow.words(size)}, first=64),
    Way(how="count", make=lambda size: {"style": grow.table(size)}, first=4, most=1 << 19),
    Way(how="nesting", make=lambda size: {"style": grow.nested(size)}, first=4, most=1 << 12),
    Way(how="count of unknown names", make=grow.table, first=4, most=1 << 19),
)
_RESUMED = (
    Way(how="texts", make=lambda size: [[5]] * size, most=1 << 19),
    Way(how="tokens", make=lambda size: [[5] * size], first=4, most=1 << 20),
)
_LONG = replace(COUNT, most=1 << 20)

WAYS: Mapping[str, tuple[Way, ...]] = {
    "*.user": (NAME,),
    "*.metadata": (KEYS, LEVELS),
    "*.client_metadata": (KEYS, LEVELS),
    "*.service_tier": (NAME,),
    "*.safety_identifier": (NAME,),
    "*.prompt_cache_key": (NAME,),
    "*.model": (NAME,),
    "*.temperature": (POWER,),
    "*.top_p": (SHARE, POWER),
    "*.top_k": _NUMBERS,
    "*.min_p": (SHARE, POWER),
    "*.typical_p": (SHARE, POWER),
    "*.seed": (EXPONENT,),
    "*.min_tokens": _NUMBERS,
    "*.stop": (replace(LENGTH, first=8), TEXTS),
    "*.stop_token_ids": (IDS,),
    "*.logit_bias": (_BIAS,),
    "*.banned_token_ids": (IDS,),
    "*.allowed_token_ids": (IDS,),
    "*.bad_words": (TEXTS, Way(how="length", make=lambda size: [grow.words(size)], first=8)),
    "*.forced_prefix": (replace(LENGTH, first=8, beside={"max_tokens": 900}),),
    "ResponsesRequest.forced_prefix": (replace(LENGTH, first=8, beside={"max_output_tokens": 900}),),
    "*.repetition_penalty": (POWER,),
    "*.presence_penalty": (POWER,),
    "*.frequency_penalty": (POWER,),
    "*.guidance_scale": (POWER,),
    "*.negative_prompt": (replace(LENGTH, beside=_GUIDED), replace(IDS, beside=_GUIDED)),
    "*.references": (TEXTS, Way(how="length", make=lambda size: [grow.words(size)], first=64)),
    "*.speculative": (Way(how="value", make=lambda size: {"num_speculative_tokens": size}, most=1 << 14),),
    "*.priority": (EXPONENT,),
    "*.timeout": (POWER,),
    "*.cache_salt": (NAME,),
    "*.resume_token_ids": (_RESUMED[0], replace(_RESUMED[1], beside={"max_tokens": 900})),
    "ResponsesRequest.resume_token_ids": (_RESUMED[0], replace(_RESUMED[1], beside={"max_output_tokens": 900})),
    "GenerateRequest.resume_token_ids": (
        _RESUMED[0],
        replace(_RESUMED[1], beside={"sampling_params": {"max_tokens": 900}}),
    ),
    "TokenSampling.resume_token_ids": (_RESUMED[0],),
    "*.request_id": (
        NAME,
        Way(
            how="length, in every chunk",
            make=grow.letters,
            first=8,
            around={"stream": True, "stream_interval": 1, "max_tokens": 64},
        ),
    ),
    "ResponsesRequest.request_id": (
        NAME,
        Way(
            how="length, in every chunk",
            make=grow.letters,
            first=8,
            around={"stream": True, "stream_interval": 1, "max_output_tokens": 64},
        ),
    ),
    "GenerateRequest.request_id": (
        NAME,
        Way(
            how="length, in every chunk",
            make=grow.letters,
            first=8,
            around={"stream": True, "stream_interval": 1, "sampling_params": {"max_tokens": 64}},
        ),
    ),
    "TokenSampling.request_id": (NAME,),  # refused there
    "*.stream_interval": (replace(COUNT, beside={"stream": True}), replace(EXPONENT, beside={"stream": True})),
    "*.n": (
        Way(
            how="value",
            make=int,
            most=1 << 14,
            beside={"temperature": 1.0, "max_tokens": 64},
            texts=lambda size: min(size, 64),
        ),
        replace(EXPONENT, beside={"temperature": 1.0}),
    ),
    "*.response_format": (
        Way(
            how="count of properties",
            first=4,
            most=1 << 17,
            make=lambda size: {"type": "json_schema", "json_schema": {"schema": grow.schema_of(size)}},
        ),
    ),
    "*.structured_outputs": (
        Way(how="choices", make=lambda size: {"choice": grow.texts(size)}, first=4, most=1 << 19),
    ),
    "*.prompt_logprobs": _NUMBERS,
    "*.logprobs": _NUMBERS,
    "*.max_tokens": (_LONG, EXPONENT),
    "*.best_of": (
        replace(
            COUNT,
            is_whole=True,
            make=lambda size: {"best_of": size, "n": size, "temperature": 1.0},
            texts=lambda size: min(size, 64),
        ),
    ),
    "*.max_completion_tokens": (_LONG, EXPONENT),
    "*.max_output_tokens": (_LONG, EXPONENT),
    "ChatRequest.top_logprobs": tuple(replace(one, beside={"logprobs": True}) for one in _NUMBERS),
    "ResponsesRequest.top_logprobs": tuple(
        replace(one, beside={"include": ["message.output_text.logprobs"]}) for one in _NUMBERS
    ),
    "*.include": (Way(how="count", make=lambda size: ["message.output_text.logprobs"] * size, most=1 << 17),),
    "*.prompt": (
        LENGTH,
        IDS,
        Way(how="texts", make=grow.texts, most=1 << 18, texts=lambda size: min(size, 64)),
        Way(how="length without a seam", make=grow.letters, first=64),
    ),
    "TokenizeRequest.prompt": (LENGTH, Way(how="length without a seam", make=grow.letters, first=64)),
    "*.messages": (_MESSAGES,),
    "*.tools": (_TOOLS,),
    "ResponsesRequest.tools": (_FUNCTIONS,),
    "*.tool_choice": (
        Way(
            how="length of the name",
            first=8,
            is_whole=True,
            make=lambda size: {
                "tools": [{"type": "function", "function": {"name": grow.letters(size)}}],
                "tool_choice": {"type": "function", "function": {"name": grow.letters(size)}},
            },
        ),
    ),
    "ResponsesRequest.tool_choice": (
        Way(
            how="length of the name",
            first=8,
            is_whole=True,
            make=lambda size: {
                "tools": [{"type": "function", "name": grow.letters(size)}],
                "tool_choice": {"type": "function", "name": grow.letters(size)},
            },
        ),
    ),
    "*.prediction": (
        Way(how="length", make=lambda size: {"type": "content", "content": grow.words(size)}, first=64),
        Way(
            how="parts",
            first=4,
            most=1 << 18,
            make=lambda size: {"type": "content", "content": [{"type": "text", "text": "a"}] * size},
        ),
    ),
    "*.reasoning_effort": (NAME,),
    "*.chat_template": (LENGTH,),
    "*.chat_template_kwargs": _KWARGS,
    "TokenizeRequest.chat_template": (
        replace(
            LENGTH,
            is_whole=True,
            make=lambda size: {
                "prompt": None,
                "messages": [{"role": "user", "content": "a"}],
                "chat_template": grow.words(size),
            },
        ),
    ),
    "TokenizeRequest.chat_template_kwargs": tuple(
        replace(one, beside={"prompt": None, "messages": [{"role": "user", "content": "a"}]}) for one in _KWARGS
    ),
    "TokenizeRequest.messages": (replace(_MESSAGES, beside={"prompt": None}),),
    "TokenizeRequest.tools": (
        replace(_TOOLS, beside={"prompt": None, "messages": [{"role": "user", "content": "a"}]}),
    ),
    "*.token_ids": (IDS,),
    "*.tokens": (IDS,),
    "*.sampling_params": (Way(how="count of unknown names", make=grow.table, first=1, most=1 << 19),),
    "*.stream_options": (
        Way(how="count of unknown names", make=grow.table, first=1, most=1 << 19, beside={"stream": True}),
    ),
    "TokenSampling.stream_options": (Way(how="count of unknown names", make=grow.table, most=1 << 19),),
    "*.input": (LENGTH, _ITEMS),
    "*.instructions": (LENGTH,),
    "*.text": (Way(how="length", make=grow.words, first=64),),
    "ResponsesRequest.text": (
        Way(
            how="count of properties",
            first=4,
            most=1 << 17,
            make=lambda size: {"format": {"type": "json_schema", "name": "p", "schema": grow.schema_of(size)}},
        ),
    ),
    "*.reasoning": (Way(how="length", make=lambda size: {"effort": grow.letters(size)}, first=4),),
    "*.effort": (NAME,),
    # tables within
    "Message.content": (LENGTH, _PARTS, Way(how="length without a seam", make=grow.letters, first=64)),
    "MessageItem.content": (LENGTH, _TEXT_PARTS),
    "ReasoningItem.content": (
        Way(how="count", make=lambda size: [{"type": "reasoning_text", "text": "a"}] * size, first=4, most=1 << 17),
    ),
    "ReasoningItem.summary": (_THOUGHTS,),
    "ReasoningItem.encrypted_content": (NAME,),
    "OutputItem.output": (LENGTH, _TEXT_PARTS),
    "*.name": (NAME,),
    "OtherPart.type": (NAME,),
    "*.description": (LENGTH,),
    "*.parameters": _SCHEMA,
    "*.arguments": (
        Way(how="length", make=lambda size: '{"a": "' + grow.letters(size) + '"}', first=8),
        Way(how="nesting", make=lambda size: '{"a":' * size + "1" + "}" * size, first=4, most=1 << 19),
    ),
    "*.id": (NAME,),
    "*.call_id": (NAME,),
    "*.tool_call_id": (NAME,),
    "*.reasoning_content": (LENGTH,),
    "Message.tool_calls": (replace(_CALLS, beside={"role": "assistant"}),),
    "Message.parsed": (KEYS, LEVELS),
    "Called.parsed_arguments": (KEYS, LEVELS),
    "ToolCall.index": _NUMBERS,
    "Prediction.content": (LENGTH, _PARTS),
    "Tool.function": (Way(how="count of unknown names", make=grow.table, most=1 << 18),),
    "ToolCall.function": (Way(how="count of unknown names", make=grow.table, most=1 << 18),),
    "ToolChoice.function": (Way(how="count of unknown names", make=grow.table, most=1 << 18),),
    "StructuredOutputs.json": (
        *_SCHEMA,
        Way(
            how="length, as text",
            first=64,
            make=lambda size: '{"type": "string", "description": "' + grow.letters(size) + '"}',
        ),
    ),
    "StructuredOutputs.regex": _REGEX,
    "StructuredOutputs.choice": (TEXTS, Way(how="length", make=lambda size: [grow.words(size)], first=64)),
    "StructuredOutputs.grammar": (*_GRAMMAR[:3], replace(_GRAMMAR[3], around={"max_tokens": 64, "ignore_eos": True})),
    "StructuredOutputs.whitespace_pattern": (
        Way(how="repetitions", make=lambda size: f"[ ]{{0,{size}}}", most=1 << 24, beside={"json": SCHEMA}),
        Way(how="length", make=lambda size: " ?" * size, first=8, beside={"json": SCHEMA}),
    ),
    "ResponseFormat.json_schema": (
        Way(how="length of the name", first=8, make=lambda size: {"name": grow.letters(size), "schema": SCHEMA}),
    ),
    "*.schema": _SCHEMA,
    "SpeculativeFields.method": (NAME,),
    "SpeculativeFields.verifier": (NAME,),
    "SpeculativeFields.policy": (NAME,),
    "SpeculativeFields.num_speculative_tokens": _NUMBERS,
    "*.annotations": (Way(how="count", make=lambda size: [{"a": 1}] * size, first=4, most=1 << 18),),
    "Part.logprobs": (Way(how="count", make=lambda size: [{"a": 1}] * size, first=4, most=1 << 18),),
    "TextConfig.format": (
        Way(
            how="count of properties",
            first=4,
            most=1 << 17,
            make=lambda size: {"type": "json_schema", "name": "p", "schema": grow.schema_of(size)},
        ),
    ),
    "/v1/models/{model}?model": (Way(how="length", make=grow.letters, first=8, most=1 << 20),),
    "/kv_events?since": (EXPONENT,),
    "/kv_events?wait": (Way(how="value", make=lambda size: 0.01 * size, most=1 << 14),),
}


BESIDE: Mapping[str, Mapping[str, Any]] = {  # of fields with finitely many values: what they stand beside
    "StructuredOutputs.disable_any_whitespace": {"json": SCHEMA},
    "ChatRequest.continue_final_message": {
        "add_generation_prompt": False,
        "messages": [{"role": "assistant", "content": "It was"}],
    },
}


def ways_of(field: Field) -> tuple[Way, ...]:
    """How it grows. Raises `KeyError` for a field that has no line."""
    own = f"{field.table}.{field.name}" if not field.table.endswith("?") else field.id
    for name in (own, f"*.{field.name}"):
        if name in WAYS:
            return WAYS[name]
    raise KeyError(f"{field.id} has no line in WAYS: say how it grows")


def used(found: list[Field]) -> Iterator[str]:
    """The lines that some field stands on."""
    for field in found:
        if field.values is None:
            own = field.id
            yield own if own in WAYS else f"*.{field.name}"


def settings_of(field: Field, way: Way, size: int) -> dict[str, Any]:
    """What stands in the field's table."""
    value = way.make(size)
    return dict(value) if way.is_whole else {**way.beside, field.name: value}
