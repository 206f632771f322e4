"""Every format that a suite may have, what is refused, and that our own workloads are what they say."""

import gzip
import json
from pathlib import Path

import pytest

from outdraft.bench.suites import DEFAULT, NAMES, load_suite, load_suites
from outdraft.bench.suites.workloads import REAL, log_text
from outdraft.options.errors import ConfigError

SYSTEM, USER = {"role": "system", "content": "x"}, {"role": "user", "content": "a"}
SAID = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
ROWS = {  # a row, then the prompt's name, category, turns, and whether it is a chat
    "spec-bench": ({"question_id": 81, "category": "writing", "turns": ["a", "b"]}, "81", "writing", ("a", "b"), True),
    "speed-bench": (
        {"question_id": "q", "category": "qa", "sub_category": "", "turns": ["a"]},
        "q",
        "qa",
        ("a",),
        True,
    ),
    "humaneval": ({"task_id": "H/0", "prompt": "def f():", "test": ""}, "H/0", "s", ("def f():",), False),
    "gsm8k": ({"question": "How many?", "answer": "4"}, "1", "s", ("How many?",), True),
    "ours": ({"kind": "prose", "prompt": "Once"}, "1", "prose", ("Once",), False),
    "openai": ({"messages": [SYSTEM, USER]}, "1", "s", ("a",), True),
    "sharegpt": ({"id": "i", "conversations": SAID}, "i", "s", ("a",), True),
}


@pytest.mark.parametrize("form", ROWS)
def test_formats(tmp_path: Path, form: str):
    row, name, category, turns, chat = ROWS[form]
    file = tmp_path / "s.jsonl"
    file.write_text(json.dumps(row) + "\n\n")
    (prompt,) = load_suite(str(file))
    assert (prompt.name, prompt.category, prompt.turns, prompt.chat) == (name, category, turns, chat)
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(row).encode()))
    assert load_suite(f"s={packed}") == [prompt]
    listed = tmp_path / "u.json"
    listed.write_text(json.dumps([row]))
    assert load_suite(f"s={listed}") == [prompt]


def test_plain_text(tmp_path: Path):
    lines, blocks = tmp_path / "lines.txt", tmp_path / "blocks.md"
    lines.write_text("one\n\ntwo\n")
    blocks.write_text("one\n\nstill one\n---\ntwo\n---\n")
    assert [prompt.turns[0] for prompt in load_suite(str(lines))] == ["one", "two"]
    assert [prompt.turns[0] for prompt in load_suite(str(blocks))] == ["one\n\nstill one", "two"]


def test_only_line_ends_end_a_line(tmp_path: Path):
    """A text may hold U+2028 and U+0085, as web pages do."""
    said = "one\u2028still\u0085one"
    rows, lines, blocks = tmp_path / "s.jsonl", tmp_path / "lines.txt", tmp_path / "blocks.md"
    rows.write_text(json.dumps({"prompt": said}, ensure_ascii=False) + "\n", encoding="utf-8")
    lines.write_bytes(f"{said}\r\ntwo\r\n".encode())
    blocks.write_text(f"{said}\n---\ntwo\n", encoding="utf-8")
    assert [prompt.turns[0] for prompt in load_suite(str(rows))] == [said]
    assert [prompt.turns[0] for prompt in load_suite(str(lines))] == [said, "two"]
    assert [prompt.turns[0] for prompt in load_suite(str(blocks))] == [said, "two"]


@pytest.mark.parametrize(
    "text, says",
    [
        ('{"nothing": 1}', "row 1 has none of"),
        ('{"prompt": ""}', "empty"),
        ('{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM"]}', "place-holder"),
        ('{"messages": ["hi"]}', "row 1"),
        ("{", "line 1 is no JSON"),
        ("3", "row 1 is a int"),
        ("", "holds no prompt"),
        ('{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}', "two prompts called '1'"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, says: str):
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_suite(str(file))


@pytest.mark.parametrize("damaged", [lambda whole: whole[:-20], lambda whole: whole[:20] + bytes(30) + whole[50:]])
def test_a_damaged_archive_is_refused(tmp_path: Path, damaged):
    rows = "\n".join(json.dumps({"prompt": f"{i * i} of {i}"}) for i in range(200))
    (tmp_path / "t.jsonl.gz").write_bytes(damaged(gzip.compress(rows.encode())))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_suite(str(tmp_path / "t.jsonl.gz"))


def test_names_and_counts(tmp_path: Path):
    with pytest.raises(ConfigError, match="did you mean 'prose'"):
        load_suite("proes")
    file = tmp_path / "question.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"p{i}"}) + "\n" for i in range(9)))
    prompts = load_suites([str(file)], count=3)
    assert [prompt.turns[0] for prompt in prompts] == ["p0", "p3", "p6"] and prompts[0].suite == tmp_path.name
    with pytest.raises(ConfigError, match="two suites are called"):
        load_suites([str(file), str(file)])


@pytest.mark.parametrize("name", NAMES)
def test_our_workloads(name: str):
    prompts = load_suite(name)
    assert len(prompts) >= 3 and {prompt.suite for prompt in prompts} == {name}
    assert {prompt.chat for prompt in prompts} == {name in REAL} and set(DEFAULT) <= set(NAMES)


def test_real_questions_are_all_three_sets():
    prompts = load_suites(["real"])
    assert [prompt.suite for prompt in prompts] == [name for name in REAL for _ in range(80)]
    assert all(len(prompt.turns) == 1 and prompt.turns[0].strip() for prompt in prompts)


def test_logs_are_made_by_rule():
    assert log_text(1) == log_text(1) != log_text(2)
    assert len(log_text(3).splitlines()) == 8


def test_references_are_texts_to_copy_from(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "Copy it:", "references": ["the document"], "reference": ["the answer"]}))
    assert load_suite(str(path))[0].references == ("the document",), "an answer key is no draft"
    path.write_text(json.dumps({"prompt": "Copy it:", "references": "the document"}))
    with pytest.raises(ConfigError, match="no list of texts"):
        load_suite(str(path))
    copy = load_suite("copy")[0]
    assert copy.references[0] and copy.turns[0].startswith(copy.references[0] + "\n\nCopy:")
