"""Thoughts and what is said after them, at every place where the text may be cut."""

import pytest

from outdraft.codecs.chat import ChatTemplate
from outdraft.options.errors import ConfigError
from outdraft.server.parsers.found import TOOLS, find, find_formats
from outdraft.server.parsers.thinking import REASONING

CASES = [
    (
        "qwen3",
        "<|im_start|>assistant\n",
        "<think>\nLet me < see.\n</think>\n\nIt is four.",
        "Let me < see.",
        "It is four.",
    ),
    ("qwen3", "<|im_start|>assistant\n", " It is <think> four.", "", " It is <think> four."),
    ("qwen3", "<|im_start|>assistant\n<think>\n", "Let me see.</think>It is four.\n", "Let me see.", "It is four.\n"),
    ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "It is four.", "", "It is four."),
    ("qwen3", "<|im_start|>assistant\n", "<think>Let me </thin", "Let me </thin", ""),
    ("qwen3", "<|im_start|>assistant\n", "<think>\n\n</think>\n\nFour </think>.", "", "Four </think>."),
    ("qwen3", "<|im_start|>assistant\n", "<thi", "", "<thi"),
    ("deepseek_r1", "<｜Assistant｜>", "Let me see.\n</think>\nIt is four.", "Let me see.", "It is four."),
    ("deepseek_r1", "<｜Assistant｜>", "<think>\nLet me see.\n</think>\nIt is four.", "Let me see.", "It is four."),
    ("deepseek_r1", "<｜Assistant｜></think>", "It is four.", "", "It is four."),
    ("deepseek_r1", "<｜Assistant｜><think>\n", "Let me see", "Let me see", ""),
]


SHOWN = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def guessed(template: str | None) -> tuple[str | None, str | None]:
    tools = find("tool_call_parser", TOOLS, "auto", template)
    reasoning = find("reasoning_parser", REASONING, "auto", template)
    return tools and tools.name, reasoning and reasoning.name


@pytest.mark.parametrize(("name", "prompt", "text", "reasoning", "content"), CASES)
def test_whole_and_at_every_cut(name: str, prompt: str, text: str, reasoning: str, content: str) -> None:
    for pieces in ([text], list(text), *([text[:cut], text[cut:]] for cut in range(1, len(text)))):
        reader = REASONING[name].reader(prompt)
        read = [*(reader.push(piece) for piece in pieces), reader.finish()]
        assert ("".join(one for one, _ in read), "".join(one for _, one in read)) == (reasoning, content), pieces


GOES_ON = [  # a message, and what an answer that goes on with it is
    ("It was", " late.", "", " late."),
    ("<think>\nLet me see.\n</think>\n\nIt was", " late.", "", " late."),
    ("<think>\nLet me", " see.\n</think>\n\nIt was.", " see.", "It was."),
    ("<think>a</think><think>\n", "\nb</think>c", "b", "c"),
    ("<think>hm</think>\n", "\nIt was.", "", "It was."),
]


@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
@pytest.mark.parametrize(("message", "text", "reasoning", "content"), GOES_ON)
def test_an_answer_that_goes_on_with_a_message(
    name: str, message: str, text: str, reasoning: str, content: str
) -> None:
    for pieces in ([text], list(text)):
        reader = REASONING[name].reader(f"<｜Assistant｜>{message}", message)
        assert reader.may_think == reader.is_thinking == bool(reasoning)
        read = [*(reader.push(piece) for piece in pieces), reader.finish()]
        assert ("".join(one for one, _ in read), "".join(one for _, one in read)) == (reasoning, content)


def test_formats_are_guessed_by_the_template() -> None:
    qwen = "{{ '<|im_start|>' }}{{ '<think>' }}{{ '</think>' }}{{ tools }}" + SHOWN
    assert guessed(qwen) == ("hermes", "qwen3")
    assert guessed("<｜Assistant｜> ... </think>") == (None, "deepseek_r1")
    assert guessed("[TOOL_CALLS]") == ("mistral", None)
    assert guessed('ipython {"name": ..., "parameters": ...}') == ("llama3", None)
    assert guessed("{{ messages }}") == guessed(None) == (None, None)
    assert find("tool_call_parser", TOOLS, "none", qwen) is None


def test_calls_are_guessed_by_the_template_that_is_used_with_tools() -> None:
    listed = [{"name": "default", "template": "<think></think>"}, {"name": "tool_use", "template": SHOWN}]
    for kept, tools in ((listed, TOOLS["hermes"]), (listed[:1], None)):
        found = find_formats("auto", "auto", ChatTemplate.from_config(kept, {}))
        assert (found.tools, found.reasoning) == (tools, None)


def test_an_unknown_format_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"tool_call_parser='hermess' is not known.*'hermes'.*llama3"):
        find("tool_call_parser", TOOLS, "hermess", None)
    assert [*TOOLS] == ["hermes", "llama3", "mistral"] and [*REASONING] == ["deepseek_r1", "qwen3"]
