"""Files of prompts, in common formats, which are recognised by the fields of each row.

    turns                       Spec-Bench, MT-bench, SPEED-Bench: a user's turns; `question_id`, `category`
    messages | conversations    chats as OpenAI or ShareGPT write them: the user's turns are taken
    task_id + prompt            HumanEval: code to continue
    question                    GSM8K: one turn
    prompt | text               text to continue; `category` or `kind` if there is one
Any row may have `references`: texts that its answer may copy from. (`reference`, which MT-bench has, holds the right
answers; drafters must not see them, and it is not read.)
Rows are JSON lines or one JSON list; ".gz" is unpacked. Any other file is plain text: one prompt a line, or, where a
line is "---", the blocks between such lines.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.bench.suites.prompt import Prompt
from outdraft.options.errors import ConfigError

Row = Mapping[str, Any]
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"  # what SPEED-Bench holds where a text has another owner


def read_file(path: Path, suite: str) -> list[Prompt]:
    """All prompts of a file. Raises `ConfigError` naming file, row and cure."""
    text = _read(path)
    if path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".ndjson")):
        rows = _rows(path, text)
        prompts = [_from_row(row, number, suite, path) for number, row in rows]
    else:
        prompts = [
            Prompt(suite=suite, name=str(number), category=suite, turns=(block,))
            for number, block in enumerate(_blocks(text), 1)
        ]
    if not prompts:
        raise ConfigError(f"suite {suite!r}: {path} holds no prompt")
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.name in seen:
            raise ConfigError(f"suite {suite!r}: {path} has two prompts called {prompt.name!r}; give them other ids")
        seen.add(prompt.name)
    return prompts


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"suite file {path} cannot be read: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lines(text: str) -> list[str]:
    """Cut at line ends alone: `splitlines` cuts at U+2028 and others too, which a text may hold."""
    return text.removesuffix("\n").split("\n")


def _rows(path: Path, text: str) -> list[tuple[int, Row]]:
    """(number, row); the number is the line's, or the place in the list."""
    if text.lstrip().startswith("["):
        try:
            listed = list(enumerate(json.loads(text), 1))
        except ValueError as error:
            raise ConfigError(f"suite file {path} is no JSON list: {error}") from error
    else:
        listed = []
        for number, line in enumerate(_lines(text), 1):
            if line.strip():
                try:
                    listed.append((number, json.loads(line)))
                except ValueError as error:
                    raise ConfigError(f"suite file {path}, line {number} is no JSON: {error}") from error
    for number, row in listed:
        if not isinstance(row, dict):
            raise ConfigError(f"suite file {path}, row {number} is a {type(row).__name__}: a row is a JSON object")
    return listed


def _from_row(row: Row, number: int, suite: str, path: Path) -> Prompt:
    chat = True
    if "turns" in row:
        turns = row["turns"]
    elif "messages" in row:
        turns = _said(row["messages"], "role", ("user",), "content")
    elif "conversations" in row:
        turns = _said(row["conversations"], "from", ("human", "user"), "value")
    elif "prompt" in row or "text" in row:
        turns, chat = [row.get("prompt", row.get("text"))], False
    elif "question" in row:
        turns = [row["question"]]
    else:
        raise ConfigError(
            f"suite file {path}, row {number} has none of turns, messages, conversations, prompt, text and question; "
            f"it has: {', '.join(row)}"
        )
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ConfigError(f"suite file {path}, row {number}: a prompt is missing, empty or not a string")
    if any(turn.startswith(_PLACEHOLDER) for turn in turns):
        raise ConfigError(
            f"suite file {path}, row {number} is a place-holder: SPEED-Bench's own preparation script fetches the texts"
        )
    name = next((str(row[key]) for key in ("question_id", "task_id", "id") if key in row), str(number))
    category = str(row.get("category") or row.get("kind") or suite)
    references = row.get("references") or []
    if not isinstance(references, list) or not all(isinstance(text, str) for text in references):
        raise ConfigError(f"suite file {path}, row {number}: references={references!r} is no list of texts")
    return Prompt(
        suite=suite, name=name, category=category, turns=tuple(turns), chat=chat, references=tuple(references)
    )


def _said(messages: Any, role: str, user: tuple[str, ...], content: str) -> list[Any]:
    """What the user said; nothing if these are no messages."""
    if not isinstance(messages, list):
        return []
    return [one.get(content) for one in messages if isinstance(one, dict) and one.get(role) in user]


def _blocks(text: str) -> list[str]:
    lines = _lines(text)
    if "---" not in [line.strip() for line in lines]:
        return [line for line in lines if line.strip()]
    blocks: list[str] = []
    block: list[str] = []
    for line in [*lines, "---"]:
        if line.strip() == "---":
            blocks.append("\n".join(block))
            block = []
        else:
            block.append(line)
    return [block for block in blocks if block.strip()]
