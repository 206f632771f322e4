"""Texts and chats in files, one example after the other, as ids and which of them a draft should learn to guess.

    {"text": "..."}                                        all of it
    {"prompt": "...", "response": "..."}                   the response
    {"messages": [{"role": "user", "content": "..."}, ..]} the assistant's words, by the target's chat template
    {"conversations": [{"from": "human", "value": "..."}]} the same in ShareGPT's words
    {"prompt_token_ids": [..], "token_ids": [..]}          what an engine wrote: the latter

JSON lines (.jsonl, .ndjson, .jsonl.gz) and Parquet; any other file is one text. A field that is null is not there:
Parquet gives every row every column. Raises `ConfigError` naming file and line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from outdraft.codecs.chat import ChatTemplate, render_plain
from outdraft.codecs.text import TextCodec
from outdraft.drafters.shared.look_up.datastore.documents import LINES, kind_of, open_text
from outdraft.drafters.shared.look_up.datastore.documents import find_files as find_texts
from outdraft.options.errors import ConfigError, RequestError
from outdraft.options.paths import user_path
from outdraft.options.shown import shown

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an example, and whether the draft learns from it."""

    content: str | Seq[int]
    counts: bool  # a draft should learn to guess it
    special: bool = True  # the tokenizer may put a start token before it; False: a chat template has written one


def find_files(paths: Iterable[str | Path], *, but: Path | None = None) -> list[Path]:
    """The files that `paths` name; of a directory those with records, and only where there are none its loose texts.

    A data set's README is no example of it, nor is what a run writes to `but`, unless a path within is named. Raises
    `ConfigError` for a path that is not there, or without any text.
    """
    found: list[Path] = []
    for path in map(user_path, paths):
        inside = path.rglob("*") if path.is_dir() else ()
        without = None if _is_below(path, but) else but
        told = (one for one in inside if one.is_file() and kind_of(one) in (".parquet", *LINES))
        records = sorted(one for one in told if not _is_below(one, without))
        taken = records or [one for one in find_texts([path]) if not _is_below(one, without)]
        if not taken:
            raise ConfigError(f"{path} holds no text but what a run has written to {but}: name where the examples are")
        found += taken
    return found


def _is_below(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.resolve().is_relative_to(folder.resolve())


def read_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each stands, for errors, and what it says."""
    if kind_of(path) == ".parquet":
        yield from _read_parquet(path)
        return
    with open_text(path) as lines:
        if kind_of(path) not in LINES:
            text = lines.read()
            if kind_of(path) == ".json" and text.lstrip().startswith(("[", "{")):
                raise ConfigError(
                    f"{path} holds JSON, which is no text to learn: write its examples one object a line into a file "
                    "whose name ends in .jsonl"
                )
            yield str(path), {"text": text}
            return
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            if line.strip():
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ConfigError(f"{where} is not JSON ({error}): mend it, or fetch the file again") from error
                if not isinstance(record, dict):
                    raise ConfigError(f"{where}: {shown(record)} is no table of fields")
                yield where, record


def _read_parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        from datasets import Dataset  # type: ignore[import-not-found, unused-ignore]
        from datasets.exceptions import DatasetsError  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigError(f"{path}: Parquet needs the package datasets: pip install outdraft[train]") from None
    try:
        table = Dataset.from_parquet(str(path))
    except (DatasetsError, OSError, ValueError) as error:
        cause = error.__cause__ or error
        raise ConfigError(f"{path} is no whole Parquet file ({cause}): fetch or write it again") from error
    for number, record in enumerate(table, 1):
        yield f"{path}, row {number}", record


def pieces_of(
    record: Mapping[str, Any], template: ChatTemplate | None, where: str, *, asks: bool = False
) -> list[Piece]:
    """An example cut where what counts begins and ends. `asks`: a prompt without an answer is one too."""
    if isinstance(record.get("token_ids"), list):
        before = record.get("prompt_token_ids") or []
        if not isinstance(before, list):
            raise ConfigError(f"{where}: prompt_token_ids is {shown(before)}, not a list of ids")
        return [Piece(before, False), Piece(record["token_ids"], True)]
    if isinstance(record.get("text"), str):
        return [Piece(record["text"], True)]
    answer = _given(record, "response", "completion")
    if isinstance(record.get("prompt"), str) and isinstance(answer, str):
        return [Piece(record["prompt"], False), Piece(answer, True)]
    if asks and isinstance(record.get("prompt"), str):
        return [Piece(record["prompt"], False)]
    chat = _given(record, "messages", "conversations")
    if isinstance(chat, list) and chat:
        messages = [_message(one, where) for one in chat]
        if asks and messages[-1]["role"] != "assistant":
            return [Piece(_render(messages, template, where, asks=True), False, template is None)]
        return _chat(messages, template, where)
    raise ConfigError(
        f"{where} has the fields {', '.join(map(str, record)) or 'nothing'}: it needs text, or prompt and response, or "
        "messages"
    )


def _given(record: Mapping[str, Any], *names: str) -> Any:
    """What stands under the first of these names that is there and not null."""
    return next((value for name in names if (value := record.get(name)) is not None), None)


def _message(given: Any, where: str) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: {shown(given)} is no message: write a table with role and content")
    role, content = _given(given, "role", "from"), _given(given, "content", "value")
    if not isinstance(role, str) or role not in _ROLES or not isinstance(content, str):
        raise ConfigError(f"{where}: a message has a role ({', '.join(_ROLES)}) and a text, not {shown(dict(given))}")
    return {"role": _ROLES[role], "content": content}


def _chat(messages: list[dict[str, str]], template: ChatTemplate | None, where: str) -> list[Piece]:
    """Where an answer begins and ends is seen by rendering the conversation up to it, and with it.

    What the assistant says before the user asked is no answer: there is no prompt behind which it would be written.
    """
    texts, marks, asked = [""], [False], False
    for i, message in enumerate(messages):
        asked = asked or message["role"] == "user"
        if asked and message["role"] == "assistant":
            texts += [_render(messages[:i], template, where, asks=True), _render(messages[: i + 1], template, where)]
            marks += [False, True]
    if len(texts) == 1:
        raise ConfigError(f"{where}: this conversation has no answer of the assistant, so there is nothing to guess")
    for shorter, longer in pairwise(texts):
        if not longer.startswith(shorter):
            raise ConfigError(
                f"{where}: the chat template rewrites earlier messages ({shown(shorter[-40:])}), so the answers "
                "cannot be found in the text; give prompt and response instead"
            )
    cut = [
        Piece(longer[len(shorter) :], mark, template is None)
        for (shorter, longer), mark in zip(pairwise(texts), marks[1:], strict=True)
    ]
    return [piece for piece in cut if piece.content]


def _render(messages: list[dict[str, str]], template: ChatTemplate | None, where: str, *, asks: bool = False) -> str:
    try:
        if template is not None:
            return template.render(messages, add_generation_prompt=asks).text if messages else ""
        if asks:
            return render_plain(messages).text
        before = _render(messages[:-1], template, where, asks=True)
        return f"{before} {messages[-1]['content']}\n"
    except RequestError as error:
        raise ConfigError(f"{where}: {error}") from error


def encode(pieces: Seq[Piece], codec: TextCodec | None, where: str) -> tuple[list[int], list[bool]]:
    """Ids, and whether each counts; the end token closes what counts."""
    ids: list[int] = []
    counts: list[bool] = []
    for piece in pieces:
        if isinstance(piece.content, str):
            if codec is None:
                raise ConfigError(f"{where} holds text, and the target has no tokenizer: give token_ids")
            try:
                own = codec.encode(piece.content, add_special=piece.special and not ids)
            except RequestError as error:  # it holds half a character
                raise ConfigError(f"{where}: {error}") from error
        else:
            own = list(piece.content)
            if not all(type(one) is int for one in own):
                raise ConfigError(f"{where}: token ids are whole numbers, not {shown(own[:8])}")
        ids += own
        counts += [piece.counts] * len(own)
    return ids, counts
