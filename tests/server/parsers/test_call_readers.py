"""Texts as models write them, taken apart: whole, at every place where they may be cut, and character by character."""

import json
from collections.abc import Sequence as Seq
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.server.parsers.call_reader import Piece
from outdraft.server.parsers.found import TOOLS
from outdraft.server.parsers.json_text import WrittenCall

NAMES = frozenset({"weather", "look_up"})
ROME, BERN = ("weather", {"city": "Rome"}), ("weather", {"city": "Bern"})
DEEP = ("look_up", {"query": 'a "quoted" } ] </tool_call> {[ \\', "tags": [{"a": [1, -2.5, None, True]}], "ü": "€"})
HERMES = [
    ("It is four.", "It is four.", []),
    ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>', "", [ROME]),
    ('<tool_call>{"name":"weather","arguments":"{\\"city\\": \\"Rome\\"}"}</tool_call>\n', "", [ROME]),
    (
        'Let me look.\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n<tool_call>\n'
        '{"arguments": {"city": "Bern"}, "name": "weather"}\n</tool_call>',
        "Let me look.",
        [ROME, BERN],
    ),
    ('<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}', "", [ROME]),
    ('<tool_call>\n{"name": "weather", "arguments": {"ci', '\n{"name": "weather", "arguments": {"ci', []),
    ("a <tool_call> b </tool_call> c", "a b  c", []),
    ("x < y <tool", "x < y <tool", []),
    ('<tool_call>{"name": "weather"}</tool_call>', "", [("weather", {})]),
    ('<tool_call>{"name": "weather", "parameters": {"city": "Rome"}}</tool_call>', "", [ROME]),
    ('<tool_call>{"name": "weather", "args": "{\\"city\\": \\"Rome\\"}"}</tool_call>', "", [ROME]),
    (
        '<tool_call>{"name": "weather", "input": {"city": "Rome"}}</tool_call>',
        '{"name": "weather", "input": {"city": "Rome"}}',
        [],
    ),
    ('<tool_call>{"name": "weather", "city": "Rome"}</tool_call>', '{"name": "weather", "city": "Rome"}', []),
    (
        '<tool_call>{"name": "weather", "arguments": {}, "parameters": {"city": "Rome"}}</tool_call>',
        '{"name": "weather", "arguments": {}, "parameters": {"city": "Rome"}}',
        [],
    ),
    ('<tool_call>{"id": "c", "type": "function", "name": "weather"}</tool_call>', "", [("weather", {})]),
    (
        '<tool_call>{"name": "weather", "arguments": {"a": NaN}}</tool_call>',
        '{"name": "weather", "arguments": {"a": NaN}}',
        [],
    ),
    (
        '<tool_call>{"name": "weather", "arguments": {"a": 1e999}}</tool_call>',
        '{"name": "weather", "arguments": {"a": 1e999}}',
        [],
    ),
    (f"<tool_call>\n{json.dumps({'name': DEEP[0], 'arguments': DEEP[1]})}\n</tool_call>", "", [DEEP]),
]
LLAMA = [
    ("It is four; or five.", "It is four; or five.", []),
    ('{"name": "weather", "parameters": {"city": "Rome"}}', "", [ROME]),
    (
        '\n{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "weather", "parameters": {"city": "Bern"}}\n',
        "",
        [ROME, BERN],
    ),
    ('<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}', "", [ROME]),
    (
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; <|python_tag|>'
        '{"name": "weather", "arguments": {"city": "Bern"}}',
        "",
        [ROME, BERN],
    ),
    (
        'Let me look. <|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}} then',
        "Let me look. then",
        [ROME],
    ),
    ('{"answer": 4}', '{"answer": 4}', []),
    ('{"name": "Anna", "parameters": {}}', '{"name": "Anna", "parameters": {}}', []),
    ('<|python_tag|>search.call(query="x")', 'search.call(query="x")', []),
    ('{"name": "weather", "param', '{"name": "weather", "param', []),
    ('{"name": "weather", "args": {"city": "Rome"}}', "", [ROME]),
    ('{"name": "weather", "city": "Rome"}', '{"name": "weather", "city": "Rome"}', []),
    ('A set: {"name": "weather", "parameters": {}}', 'A set: {"name": "weather", "parameters": {}}', []),
    (json.dumps({"name": DEEP[0], "parameters": DEEP[1]}), "", [DEEP]),
]
MISTRAL = [
    ("[It] is four.", "[It] is four.", []),
    ('[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]', "", [ROME]),
    (
        'Let me look. [TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}, '
        '{"name": "weather", "arguments": {"city": "Bern"}}]\n',
        "Let me look.",
        [ROME, BERN],
    ),
    (
        '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Bern"}',
        "",
        [ROME, BERN],
    ),
    ('[TOOL_CALLS]weather{"city": "Rome"}', "", [ROME]),
    ('[TOOL_CALLS][{"name": "weather", "argu', '[{"name": "weather", "argu', []),
    ("[TOOL_CALLS] nothing", " nothing", []),
    ('[TOOL_CALLS][{"name": "weather", "parameters": {"city": "Rome"}}]', "", [ROME]),
    ('[TOOL_CALLS][{"name": "weather", "city": "Rome"}]', '[{"name": "weather", "city": "Rome"}]', []),
    ("[TOOL_CALLS]" + "n" * 300 + '{"city": "Rome"}', "n" * 300 + '{"city": "Rome"}', []),
    ("[TOOL_CALLS][]", "[]", []),
    (f"[TOOL_CALLS][{json.dumps({'name': DEEP[0], 'arguments': DEEP[1]})}]", "", [DEEP]),
]
CASES = [
    (kind, *case) for kind, cases in (("hermes", HERMES), ("llama3", LLAMA), ("mistral", MISTRAL)) for case in cases
]


def read(kind: str, pieces: Seq[str]) -> tuple[str, list[tuple[str, dict[str, object]]], list[Piece]]:
    form = TOOLS[kind]
    assert form is not None
    reader = form.reads(NAMES, opened=False)
    found = [one for piece in pieces for one in reader.push(piece)] + reader.finish()
    calls = [(one.name, json.loads(one.arguments)) for one in found if isinstance(one, WrittenCall)]
    return "".join(one for one in found if isinstance(one, str)), calls, found


@pytest.mark.parametrize(("kind", "text", "content", "calls"), CASES)
def test_whole_and_at_every_cut(kind: str, text: str, content: str, calls: list[object]) -> None:
    assert read(kind, [text])[:2] == (content, calls)
    assert read(kind, list(text))[:2] == (content, calls)
    for cut in range(1, len(text)):
        assert read(kind, [text[:cut], text[cut:]])[:2] == (content, calls), text[:cut]


PARTS = {
    "hermes": [
        "<tool_call>",
        "</tool_call>",
        '{"name": "weather", "arguments": {"city": "Rome"}}',
        "\n",
        '"',
        "<",
        "tool",
    ],
    "llama3": ["<|python_tag|>", '{"name": "weather", "parameters": {}}', "; ", "{", "}", '"', "<|", " ", "a"],
    "mistral": [
        "[TOOL_CALLS]",
        '[{"name": "weather", "arguments": {}}]',
        "weather",
        "[ARGS]",
        "{}",
        "[",
        "]",
        " ",
        "a" * 90,
    ],
}


@pytest.mark.parametrize("kind", sorted(PARTS))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_text_comes_out_the_same_however_it_is_cut(kind: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PARTS[kind]), max_size=8)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)) | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    assert read(kind, pieces)[:2] == read(kind, [text])[:2]


def test_text_goes_on_at_once_and_a_mark_never_does() -> None:
    form = TOOLS["hermes"]
    assert form is not None
    reader = form.reads(NAMES, opened=False)
    assert reader.push("Let me look. <") == ["Let me look."]
    assert reader.push("b>") == [" <b>"]
    assert reader.push(" <tool_ca") == []
    assert reader.push("ll>{") == []


def test_every_call_has_an_id_of_its_own() -> None:
    _, _, found = read("hermes", [HERMES[3][0]])
    ids = [one.id for one in found if isinstance(one, WrittenCall)]
    assert len(set(ids)) == 2 and all(one.startswith("call_") for one in ids)


def test_half_characters_in_arguments_stay_escapes() -> None:
    _, _, found = read("hermes", ['<tool_call>{"name": "weather", "arguments": {"a": "\\ud800"}}</tool_call>'])
    assert isinstance(found[0], WrittenCall) and found[0].arguments == '{"a": "\\ud800"}'


def test_a_list_behind_the_prompts_own_mark() -> None:
    form = TOOLS["mistral"]
    assert form is not None
    reader = form.reads(NAMES, opened=True)
    found = [*reader.push('[{"name": "weather", "arguments": {}}'), *reader.push("]"), *reader.finish()]
    assert [one.name for one in found if isinstance(one, WrittenCall)] == ["weather"] and len(found) == 1


def test_mistral_ids_are_nine_letters_and_the_same_every_time() -> None:
    form = TOOLS["mistral"]
    assert form is not None
    made = form.call_id("call_0123456789abcdef01234567")
    assert len(made) == 9 and made.isalnum() and form.call_id("call_0123456789abcdef01234567") == made
    assert form.call_id("a1B2c3D4e") == "a1B2c3D4e"
