"""The tables of docs/files_of_others.md about tokenizers, chat templates and generation_config.json, row by row.

*read*: the ids and texts are those of transformers' AutoTokenizer, and others than without the key. *refused*: an error
names the key. *noted*: one line of the log names it, and nothing else changes.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from foreign_files import CASES, TALK, TEXT, TOOLS, Case, byte_level, config, prompts
from page_rows import FILES_OF_OTHERS, rows_of
from tokenizers import Tokenizer

from outdraft.codecs.text import TextCodec
from outdraft.codecs.token_settings import WITHOUT_EFFECT
from outdraft.options.errors import ModelLoadError

HEADINGS = ("Tokenizer files", "Chat templates", "generation_config.json")
ROWS = [row for heading in HEADINGS for row in rows_of(FILES_OF_OTHERS, heading)]


def outcome(codec: TextCodec) -> list[Any]:
    """What a codec makes of a text, of its ids, and of a conversation."""
    ids = codec.encode(TEXT)
    talks = None if codec.chat_template is None else prompts(codec)
    return [ids, codec.decode(ids), talks, sorted(codec.eos_token_ids)]


def theirs(directory: Path) -> list[Any]:
    """The same by transformers."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids, talks = tokenizer.encode(TEXT), None
    if tokenizer.chat_template is not None:
        talks = [tokenizer.apply_chat_template(TALK, tokenize=False, tools=tools) for tools in (None, TOOLS)]
    ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return [ids, tokenizer.decode(ids, skip_special_tokens=True), talks, ends]


def write(directory: Path, case: Case, *, with_key: bool) -> Path:
    base = {"tokenizer.json": case.base(), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    parts = [base, case.beside, *[case.files] * with_key]
    for name in {name for part in parts for name in part}:
        said = [part[name] for part in parts if name in part]
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            said[-1] if isinstance(said[-1], str) else json.dumps({k: v for one in said for k, v in one.items()})
        )
    return directory


def test_every_case_has_a_row():
    assert sorted((file, key) for file, key, *_ in ROWS) == sorted(CASES)


@pytest.mark.parametrize(("file", "key", "done"), [row[:3] for row in ROWS], ids=lambda cell: cell.replace(" ", "-"))
def test_a_row_is_true(file: str, key: str, done: str, tmp_path: Path, caplog):
    case = CASES[file, key]
    caplog.set_level(logging.INFO, "outdraft.notes")
    without = outcome(TextCodec.load(write(tmp_path / "without", case, with_key=False)))
    assert not caplog.records
    directory = write(tmp_path / "with", case, with_key=True)
    if done == "refused":
        with pytest.raises(ModelLoadError) as caught:
            TextCodec.load(directory)
        told = [str(caught.value)]
    else:
        codec = TextCodec.load(directory)
        told = [record.getMessage() for record in caplog.records]
    if done == "read":
        assert outcome(codec) != without
        assert outcome(codec) == theirs(directory) if case.expected is None else case.expected(codec)
        return
    assert done == "refused" or outcome(codec) == without
    (line,) = told
    assert "\n" not in line and line.startswith("with") and all(word in line for word in case.says or [key]), line


@pytest.mark.parametrize("says", ["hi", "hi <s> there"])
def test_special_tokens_of_a_conversation_are_split_as_everywhere(says: str, tmp_path: Path):
    case = Case(files=config(split_special_tokens=True, chat_template="<s>{{ messages[0].content }}<s>"))
    ours, talk = TextCodec.load(write(tmp_path, case, with_key=True)), [{"role": "user", "content": says}]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert ours.apply_chat_template(talk) == theirs.apply_chat_template(talk, return_dict=False)


def test_a_role_is_no_variable_of_the_conversation(tmp_path: Path):
    case = Case(files=config(extra_special_tokens={"tools": "<z>"}, chat_template="{{ tools }}"))
    codec = TextCodec.load(write(tmp_path, case, with_key=True))
    assert codec.apply_chat_template(TALK, tokenize=False) == "None"


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_is_on_the_page_and_says_nothing(key: str, tmp_path: Path, caplog):
    assert f"`{key}`" in FILES_OF_OTHERS.read_text()
    directory = write(tmp_path, Case(files=config(**{key: 7})), with_key=True)
    caplog.set_level(logging.INFO, "outdraft.notes")
    ids = TextCodec.load(directory).encode(TEXT)
    assert not caplog.records and ids == Tokenizer.from_str(json.dumps(byte_level())).encode(TEXT).ids
