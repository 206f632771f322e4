"""Parts of a message that are not text, such as an image, and the rows of the prompt that stand in their place.

    {"type": "text", "text": "What is "}    ids of the text
    {"type": "image", ...}                  PartRows of the reader that is registered for "image": ids, and vectors

A mark that no text can guess stands for a part while the chat template writes the conversation; text before and behind
it is encoded by itself. No reader is registered at first.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import torch
from torch import Tensor

from outdraft.codecs.chat import ChatPrompt, Message
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ConfigError, RequestError
from outdraft.options.shown import shown

_TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRows:
    """What a part is in the prompt: a row for each id."""

    ids: tuple[int, ...]  # what drafters and penalties see there
    embeds: Tensor | None = None  # [rows, D] vectors in place of the ids' embeddings; None: those


PartReader = Callable[[Mapping[str, Any]], PartRows]  # of a part as it was sent; raises RequestError for a wrong one


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Messages with marks in place of their parts, and these parts in order."""

    messages: Seq[Message]
    marks: tuple[str, ...] = ()
    rows: tuple[PartRows, ...] = ()

    def encode(self, codec: TextCodec, asked: ChatPrompt) -> dict[str, Any]:
        """The prompt of the rendered conversation. Raises `RequestError` where the template does not show each part
        once and in order."""
        ids: list[int] = []
        placed: list[tuple[int, Tensor]] = []
        at = 0
        for mark, part in zip(self.marks, self.rows, strict=True):
            begin = asked.text.find(mark, at)
            if begin < 0 or asked.text.count(mark) > 1:
                raise RequestError("the chat template does not show each part of the messages once and in order")
            ids += codec.encode_chat(_piece(asked, at, begin))
            if part.embeds is not None:
                placed.append((len(ids), part.embeds))
            ids += part.ids
            at = begin + len(mark)
        ids += codec.encode_chat(_piece(asked, at, len(asked.text)))
        if not placed:
            return {"prompt_token_ids": ids}
        embeds = placed[0][1].new_full((len(ids), placed[0][1].shape[1]), torch.nan)
        for start, vectors in placed:
            embeds[start : start + len(vectors)] = vectors
        return {"prompt_token_ids": ids, "prompt_embeds": embeds}


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The readers of one model, by the `type` of their parts."""

    _readers: dict[str, PartReader] = field(default_factory=dict)

    @property
    def known(self) -> tuple[str, ...]:
        """The types that a message may have."""
        return (_TEXT, *self._readers)

    def register(self, kind: str, reader: PartReader) -> None:
        """Read parts of this type. Raises `ConfigError` for one that has a reader."""
        if kind in self.known:
            raise ConfigError(f"parts of the type {kind!r} have a reader: register another type")
        self._readers[kind] = reader

    def take(self, messages: Seq[Message]) -> Taken:
        """Read the parts in messages, and join their texts. Raises `RequestError` for an unknown one."""
        if not isinstance(messages, list | tuple):
            return Taken(messages=messages)
        secret, rows = token_hex(16), list[PartRows]()
        made: list[Message] = []
        for message in messages:
            content = message.get("content") if isinstance(message, Mapping) else None
            if not isinstance(content, list):
                made.append(message)
                continue
            pieces = []
            for part in content:
                kind = part.get("type") if isinstance(part, Mapping) else None
                if kind == _TEXT and isinstance(part.get("text"), str):
                    pieces.append(part["text"])
                    continue
                if kind not in self._readers:
                    raise RequestError(f"{shown(part)}: {self.refusal(kind)}")
                pieces.append(f"\ue002{secret}{len(rows)}\ue003")
                rows.append(self._readers[kind](part))
            made.append({**message, "content": "".join(pieces)})
        marks = tuple(f"\ue002{secret}{i}\ue003" for i in range(len(rows)))
        return Taken(messages=made, marks=marks, rows=tuple(rows))

    def refusal(self, kind: object, where: str = "model") -> str:
        """Why a part of this type is not taken, and which are."""
        cure = "no model here reads anything else, so leave it out"
        return f"type {shown(kind)} is not for this {where}, which takes {', '.join(self.known)}: {cure}"


def _piece(asked: ChatPrompt, begin: int, end: int) -> ChatPrompt:
    """The rendered text from `begin` to `end`, with its own names of tokens."""
    own = None if asked.own is None else tuple((b - begin, e - begin) for b, e in asked.own if begin <= b and e <= end)
    return ChatPrompt(text=asked.text[begin:end], add_special=asked.add_special and begin == 0, own=own)
