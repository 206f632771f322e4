"""Pairs of fields whose costs might multiply: what one asks for is done for each of what the other asks for.

Both grow together, doubled until the request is refused. A pair's size is a share of what each may be alone: `at(size,
most)` is the size for a field that may be at most so large.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.abuse import grow
from lab.abuse.places import CHAT, COMPLETIONS, RESPONSES, SCHEMA

MOST = 1 << 16  # the largest size of a pair
_COMPLETION = {"prompt": "It was late when", "max_tokens": 32, "temperature": 1.0, "seed": 1, "ignore_eos": True}
_TALK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 32, "temperature": 1.0, "seed": 1}
_RESPONSE = {"input": "hi", "max_output_tokens": 16, "temperature": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """`make`: of a size, what stands in the body beside the base. `texts`: as in `Way`."""

    name: str
    path: str
    base: Mapping[str, Any]
    make: Callable[[int], Mapping[str, Any]]
    texts: Callable[[int], int] = lambda size: 1

    def body(self, size: int) -> dict[str, Any]:
        return {**self.base, **self.make(size)}


def at(size: int, most: int) -> int:
    """At least one, at most so many."""
    return max(1, min(size, most))


def _n(size: int) -> int:
    return at(size, 64)


def _complete(name: str, make: Callable[[int], Mapping[str, Any]], *, many: bool = False) -> Pair:
    return Pair(name=name, path=COMPLETIONS, base=_COMPLETION, make=make, texts=_n if many else lambda size: 1)


def _chat(name: str, make: Callable[[int], Mapping[str, Any]], *, many: bool = False) -> Pair:
    return Pair(name=name, path=CHAT, base=_TALK, make=make, texts=_n if many else lambda size: 1)


def _form(**form: Any) -> dict[str, Any]:
    return {"structured_outputs": form}


def _tools(size: int, parameters: Any = None) -> list[Any]:
    more = {} if parameters is None else {"parameters": parameters}
    return [{"type": "function", "function": {"name": f"f{i}", **more}} for i in range(size)]


def _users(size: int, length: int = 1) -> list[Any]:
    return [{"role": "user", "content": grow.words(length)}] * size


def _calls(size: int, length: int) -> list[Any]:
    arguments = '{"a": "' + "x" * length + '"}'
    made = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": arguments}} for i in range(size)]
    return [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": made},
        {"role": "user", "content": "b"},
    ]


def _bias(size: int) -> dict[str, float]:
    return {str(5 + i): 0.5 for i in range(at(size, 4000))}


def _enums(size: int) -> dict[str, Any]:
    made: dict[str, Any] = grow.enum_schema(at(size, 512))
    for _ in range(at(size, 64)):
        made = {"type": "object", "properties": {"a": made, "b": grow.enum_schema(at(size, 64))}, "required": ["a"]}
    return made


PAIRS: tuple[Pair, ...] = (
    _complete("n x references", lambda s: {"n": _n(s), "references": [grow.words(s * 16)]}, many=True),
    _complete("references x their count", lambda s: {"references": [grow.words(at(s, 4096))] * at(s, 1024)}),
    _complete("n x bad_words", lambda s: {"n": _n(s), "bad_words": grow.texts(at(s, 1024))}, many=True),
    _complete(
        "bad_words x their length",
        lambda s: {"bad_words": [grow.words(at(s, 250)) + f"{i}" for i in range(at(s, 1024))]},
    ),
    _complete("n x stop", lambda s: {"n": _n(s), "stop": grow.texts(at(s, 64))}, many=True),
    _complete("stop x its length", lambda s: {"stop": [grow.letters(at(s, 250)) + f"{i}" for i in range(at(s, 64))]}),
    _complete("stop x max_tokens", lambda s: {"stop": grow.texts(at(s, 64)), "max_tokens": at(s, 1000)}),
    _complete("n x logprobs", lambda s: {"n": _n(s), "logprobs": at(s, 20)}, many=True),
    _complete("logprobs x max_tokens", lambda s: {"logprobs": at(s, 20), "max_tokens": at(s, 1000)}),
    _chat(
        "top_logprobs x max_tokens", lambda s: {"logprobs": True, "top_logprobs": at(s, 20), "max_tokens": at(s, 900)}
    ),
    _chat("n x top_logprobs", lambda s: {"n": _n(s), "logprobs": True, "top_logprobs": at(s, 20)}, many=True),
    _complete("prompts x n", lambda s: {"prompt": grow.texts(at(s, 64)), "n": at(s // 8, 64)}, many=True),
    _complete(
        "prompts x their length",
        lambda s: {"prompt": [f"{i} {grow.words(at(s * 8, 4000))}" for i in range(at(s, 64))]},
        many=True,
    ),
    _complete(
        "prompts x prompt_logprobs",
        lambda s: {
            "prompt": [f"{i} {grow.words(at(s * 8, 3000))}" for i in range(at(s, 64))],
            "prompt_logprobs": at(s, 20),
        },
        many=True,
    ),
    _complete(
        "echo x prompt logprobs", lambda s: {"echo": True, "logprobs": at(s, 20), "prompt": grow.words(at(s * 8, 4000))}
    ),
    _complete("echo x n", lambda s: {"echo": True, "n": _n(s), "prompt": grow.words(at(s * 8, 4000))}, many=True),
    _complete(
        "n x return_token_ids x prompt",
        lambda s: {"n": _n(s), "return_token_ids": True, "prompt": grow.ids(at(s * 4, 900))},
        many=True,
    ),
    _complete(
        "n x return_draft_tree",
        lambda s: {"n": _n(s), "return_draft_tree": True, "stream": True, "stream_interval": 1},
        many=True,
    ),
    _complete(
        "n x stream_interval",
        lambda s: {"n": _n(s), "stream": True, "stream_interval": 1, "max_tokens": at(s, 200)},
        many=True,
    ),
    _complete(
        "n x continuous usage",
        lambda s: {
            "n": _n(s),
            "stream": True,
            "stream_interval": 1,
            "stream_options": {"continuous_usage_stats": True},
        },
        many=True,
    ),
    _complete(
        "n x request_id",
        lambda s: {"n": _n(s), "request_id": grow.letters(at(s * 64, 4_000_000)), "stream": True, "stream_interval": 1},
        many=True,
    ),
    _complete("n x logit_bias", lambda s: {"n": _n(s), "logit_bias": _bias(s)}, many=True),
    _complete("n x banned_token_ids", lambda s: {"n": _n(s), "banned_token_ids": grow.ids(s)}, many=True),
    _complete("n x allowed_token_ids", lambda s: {"n": _n(s), "allowed_token_ids": grow.ids(s)}, many=True),
    _complete(
        "n x stop_token_ids", lambda s: {"n": _n(s), "stop_token_ids": grow.ids(s), "ignore_eos": False}, many=True
    ),
    _complete(
        "n x guidance",
        lambda s: {"n": _n(s), "guidance_scale": 2.0, "negative_prompt": grow.words(at(s * 8, 3000))},
        many=True,
    ),
    _complete(
        "guidance x prompts",
        lambda s: {"prompt": grow.texts(at(s, 64)), "guidance_scale": 2.0, "negative_prompt": "a"},
        many=True,
    ),
    _complete(
        "n x repetition_penalty x prompt",
        lambda s: {"n": _n(s), "repetition_penalty": 1.1, "prompt": grow.words(at(s * 8, 4000))},
        many=True,
    ),
    _complete(
        "n x forced_prefix",
        lambda s: {"n": _n(s), "forced_prefix": grow.words(at(s * 4, 2000)), "max_tokens": 600},
        many=True,
    ),
    _complete(
        "resume_token_ids x n",
        lambda s: {"n": _n(s), "resume_token_ids": [[5] * at(s, 800)] * _n(s), "max_tokens": 900},
        many=True,
    ),
    _complete("regex repetition x nesting", lambda s: _form(regex=_powers(s))),
    _complete(
        "regex repetition x branches",
        lambda s: _form(regex="(" + "|".join(f"{i}x" for i in range(at(s, 4096))) + f"){{{s}}}"),
    ),
    _complete("regex x classes", lambda s: _form(regex=rf"(\p{{L}}\p{{N}}){{{s}}}")),
    _complete("n x regex", lambda s: {"n": _n(s), **_form(regex=f"[a-z ]{{{at(s, 2000)}}}")}, many=True),
    _complete(
        "n x grammar",
        lambda s: {"n": _n(s), "max_tokens": 8, **_form(grammar="start: e\ne: e e | /[a-z ]/")},
        many=True,
    ),
    _complete(
        "ambiguous grammar x max_tokens",
        lambda s: {"max_tokens": at(s, 900), **_form(grammar="start: e\ne: e e | /./")},
    ),
    _complete(
        "ambiguous grammar x draft length",
        lambda s: {
            "max_tokens": 64,
            "speculative": {"num_speculative_tokens": at(s, 64)},
            **_form(grammar="start: e\ne: e e | /[a-z ]/"),
        },
    ),
    _complete(
        "lark rules x repetition",
        lambda s: _form(
            grammar="start: r0\n"
            + "".join(f"r{i}: r{i + 1}~{at(s, 50)}\n" for i in range(at(s, 30)))
            + f'r{at(s, 30)}: "x"'
        ),
    ),
    _complete(
        "lark doubling rules",
        lambda s: _form(
            grammar="start: a0\n"
            + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(at(s, 400)))
            + f'a{at(s, 400)}: "x"'
        ),
    ),
    _complete(
        "choices x length", lambda s: _form(choice=[f"{i} {grow.words(at(s, 1000))}" for i in range(at(s, 4096))])
    ),
    _complete("schema depth x enum", lambda s: _form(json=_enums(s))),
    _complete("schema allOf x properties", lambda s: _form(json={"allOf": [grow.schema_of(at(s, 64))] * at(s, 64)})),
    _complete("schema anyOf x depth", lambda s: _form(json=_either(at(s, 400)))),
    _complete(
        "schema minItems x minLength",
        lambda s: _form(json={"type": "array", "minItems": s, "items": {"type": "string", "minLength": s}}),
    ),
    _complete(
        "schema pattern x properties",
        lambda s: _form(
            json={"type": "object", "properties": {f"p{i}": grow.pattern_schema(s) for i in range(at(s, 512))}}
        ),
    ),
    _complete(
        "whitespace_pattern x schema",
        lambda s: _form(json=grow.schema_of(at(s, 256)), whitespace_pattern=f"[ ]{{0,{s}}}"),
    ),
    _complete(
        "draft options x n", lambda s: {"n": _n(s), "speculative": {"num_speculative_tokens": at(s, 64)}}, many=True
    ),
    _complete(
        "draft options x references",
        lambda s: {
            "speculative": {"method": "ngram", "num_speculative_tokens": at(s, 64)},
            "references": [grow.words(s * 16)],
        },
    ),
    _complete(
        "draft verifier x options",
        lambda s: {
            "speculative": {"method": "ngram", "num_speculative_tokens": at(s, 64), "policy": "fixed"},
            "max_tokens": at(s, 900),
        },
    ),
    _chat("tools x messages", lambda s: {"tools": _tools(s), "messages": _users(s)}),
    _chat("tools x their parameters", lambda s: {"tools": _tools(at(s, 4096), grow.schema_of(at(s // 4, 64)))}),
    _chat("tools x required", lambda s: {"tools": _tools(s, SCHEMA), "tool_choice": "required"}),
    _chat(
        "n x tools", lambda s: {"n": _n(s), "tools": _tools(at(s, 32), SCHEMA), "tool_choice": "required"}, many=True
    ),
    _chat("tool calls x arguments", lambda s: {"messages": _calls(at(s, 4096), at(s, 1024))}),
    _chat("messages x length", lambda s: {"messages": _users(at(s, 4096), at(s, 1024))}),
    _chat(
        "messages x parts",
        lambda s: {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * at(s, 512)}] * at(s, 512)
        },
    ),
    _chat(
        "prediction x n",
        lambda s: {"n": _n(s), "prediction": {"type": "content", "content": grow.words(s * 16)}},
        many=True,
    ),
    _chat(
        "chat_template_kwargs x depth",
        lambda s: {"chat_template_kwargs": {"style": {f"k{i}": grow.nested(at(s, 200)) for i in range(at(s, 1024))}}},
    ),
    Pair(
        name="input items x length",
        path=RESPONSES,
        base=_RESPONSE,
        make=lambda s: {
            "input": [{"type": "message", "role": "user", "content": grow.words(at(s, 1024))}] * at(s, 4096)
        },
    ),
    Pair(
        name="response tools x their parameters",
        path=RESPONSES,
        base=_RESPONSE,
        make=lambda s: {
            "tools": [
                {"type": "function", "name": f"f{i}", "parameters": grow.schema_of(at(s // 4, 64))}
                for i in range(at(s, 4096))
            ]
        },
    ),
    Pair(
        name="tokenize x return_token_strs",
        path="/tokenize",
        base={},
        make=lambda s: {"prompt": grow.words(s * 64), "return_token_strs": True},
    ),
    Pair(
        name="detokenize x special tokens",
        path="/detokenize",
        base={},
        make=lambda s: {"tokens": [0, 5] * (s * 8), "skip_special_tokens": True},
    ),
)


def _powers(size: int) -> str:
    """Repetitions within repetitions: a level more with each doubling."""
    made = "x"
    for _ in range(at(size.bit_length(), 12)):
        made = f"({made}){{{at(size, 1000)}}}"
    return made


def _either(size: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for i in range(size):
        made = {"anyOf": [{"type": "object", "properties": {f"a{i}": made}}, {"type": "array", "maxItems": i}]}
    return made
