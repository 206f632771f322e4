"""Text to ids as a Hugging Face model directory describes it.

    tokenizer.json            the tokenizer itself (`tokenizer_file`); or vocab.json + merges.txt (`byte_level`)
    tokenizer_config.json     start and end token, added tokens, chat templates, and older files of these; and
    generation_config.json    which tokens end a text, beside the tokenizer's own end token (`token_settings`)

Data in: a directory; data out: a `TextCodec`. Errors name the file and the cure.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from outdraft.codecs.byte_level import byte_level, cure
from outdraft.codecs.chat import ChatPrompt, ChatTemplate, Message, render_chat
from outdraft.codecs.control_tokens import ControlTokens
from outdraft.codecs.encoded import encoded
from outdraft.codecs.spelling import read_spelling, spell_byte_level
from outdraft.codecs.stream import TextStream
from outdraft.codecs.token_settings import (
    NEVER_ADDED,
    add_tokens,
    note_unused,
    read_ends,
    read_settings,
    special_tokens,
)
from outdraft.codecs.tokenizer_file import describe, note, read_json, read_text, read_tokenizer, spells_all
from outdraft.options.errors import ModelLoadError, RequestError


class TextCodec:
    """A codec over the `tokenizers` library. Special tokens are never part of decoded text."""

    encodes = str

    def __init__(
        self, tokenizer: Tokenizer, *, config: Mapping[str, Any] | None = None, eos_token_ids: Iterable[int] = ()
    ) -> None:
        config = config or {}
        described = describe(tokenizer)
        self._tokenizer = tokenizer
        self._spelling = read_spelling(described["decoder"])
        # An added token is what a text holds, whatever byte its letters name: DeepSeek's "ü" is one.
        plain = described["added_tokens"] if self._spelling.to_bytes is spell_byte_level else ()
        self._bytes = {one["id"]: one["content"].encode() for one in plain if not one["special"]}
        self.strips_space = self._spelling.strips_space
        self.spells_all = spells_all(described)
        self._longest: int | None = None
        self.vocab_size = tokenizer.get_vocab_size()
        self.added = {str(token["content"]): int(token["id"]) for token in described["added_tokens"]}
        self._end = 1 + max(tokenizer.get_vocab().values(), default=-1)
        self.special_ids = frozenset(token["id"] for token in described["added_tokens"] if token["special"])
        self.special_tokens = special_tokens(config)
        self.bos_token_id = self._id_of("bos_token")
        eos = self._id_of("eos_token")
        self.eos_token_ids = frozenset(eos_token_ids) | frozenset(() if eos is None else (eos,))
        self._add_bos = config.get("add_bos_token")  # absent: the tokenizer's own post-processor decides
        if self._add_bos and self.bos_token_id is None:
            raise ModelLoadError("tokenizer_config.json: add_bos_token is true, but bos_token names no known token")
        self._template = config.get("chat_template")
        if not isinstance(self._template, str | None):
            _ = self.chat_template  # a list is checked at once; a text is compiled when it is asked for

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """Compiled when it is asked for first. Raises `ModelLoadError` for one that is none."""
        return ChatTemplate.from_config(self._template, self.special_tokens)

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether the directory holds a tokenizer that `load` reads."""
        return os.path.lexists(directory / "tokenizer.json") or (
            (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()
        )

    @classmethod
    def load(
        cls, directory: Path, *, config: Mapping[str, Any] | None = None, eos_token_ids: Iterable[int] = ()
    ) -> "TextCodec":
        """Read a directory. `config`: what holds where its tokenizer_config.json says nothing; `eos_token_ids`: where
        there is no generation_config.json. Raises `ModelLoadError` if a file is missing or damaged.
        """
        settings = read_settings(directory)
        ends = read_ends(directory, eos_token_ids)
        try:
            tokenizer = _tokenizer(directory, settings)
            codec = cls(tokenizer, config={**(config or {}), **settings}, eos_token_ids=ends)
        except ModelLoadError as error:
            raise ModelLoadError(f"{directory.name}: {error}") from error
        note_unused(directory, settings, tokenizer)
        read = tokenizer.encode("a")
        ended = {} if codec._without_end(read) == read.ids else {"post_processor": read.tokens[-1]}
        note(f"{directory.name}/tokenizer.json", ended, NEVER_ADDED)
        return codec

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of `text`. The end token is never added: it would end what is to be continued.

        A text that begins with the start token, as a chat template writes it, gets no second one.

        Raises `RequestError` where the text has halves of characters, as bytes that are no UTF-8 leave them.
        """
        return self._read(self._tokenizer, text, add_special=add_special)

    def encode_chat(self, asked: ChatPrompt) -> list[int]:
        """Ids of a rendered conversation; names of control tokens that the template did not write are text."""
        ids = self.encode(asked.text, add_special=asked.add_special)
        if asked.own is None or self._tokenizer.encode_special_tokens:  # the template's are text then, too
            return ids
        control = self.control
        num_own = len(asked.own) + (asked.add_special and ids[:1] == [self.bos_token_id])
        if control.spans(asked.text) == asked.own and sum(one in control.written for one in ids) <= num_own:
            return ids
        return self._read(control.twin, control.renamed(asked.text, asked.own), add_special=asked.add_special)

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens by which the model knows who speaks."""
        return ControlTokens(self._tokenizer, describe(self._tokenizer)["added_tokens"])

    def _read(self, tokenizer: Tokenizer, text: str, *, add_special: bool) -> list[int]:
        if not text.isascii() and (half := next((c for c in text if "\ud800" <= c <= "\udfff"), None)):
            raise RequestError(f"the text holds {half!r}, half a character: write the whole one, or leave it out")
        if self._add_bos is None or not add_special:
            ids = self._without_end(encoded(tokenizer, text, add_special=add_special))
            return ids[1:] if add_special and self._starts_twice(tokenizer, ids, text) else ids
        ids = list(encoded(tokenizer, text, add_special=False).ids)
        adds = self._add_bos and self.bos_token_id is not None and ids[:1] != [self.bos_token_id]
        return [self.bos_token_id, *ids] if adds else ids  # type: ignore[list-item]

    def _without_end(self, read: Encoding) -> list[int]:
        """The ids, without an end token that the post-processor has put behind the text. Where the start token is the
        same one, an empty text keeps it."""
        ids = list(read.ids)
        is_added = bool(ids) and read.special_tokens_mask[-1] == 1 and ids[-1] in self.eos_token_ids
        return ids[:-1] if is_added and ids != [self.bos_token_id] else ids

    def _starts_twice(self, tokenizer: Tokenizer, ids: list[int], text: str) -> bool:
        """Whether a start token was put before a text that has its own, as a rendered chat template does."""
        if len(ids) < 2 or ids[0] != ids[1] or ids[0] not in self.special_ids:
            return False
        bare = encoded(tokenizer, text, add_special=False).ids
        return bare[:1] == ids[:1] and len(bare) < len(ids)

    def begins(self, text: str, ids: Seq[int]) -> list[int]:
        """Where each of the tokens that `encode` makes of `text` begins in it, in characters.

        A token that was added before or behind the text has no room in it; the parts of one character begin where it
        does.
        """
        read = encoded(self._tokenizer, text, add_special=False, with_offsets=True)
        size, num_added = len(read.ids), len(ids) - len(read.ids)
        before = next((i for i in range(num_added + 1) if [*ids[i : i + size]] == read.ids), num_added)
        found, end = [0] * before, 0
        for start, stop in read.offsets:
            found.append(min(start, end))  # a token that begins with spaces is said to begin behind them
            end = stop
        return [*found, *[len(text)] * (num_added - before)]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, on all cores, without special tokens."""
        return [one.ids for one in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    @property
    def vocabulary(self) -> dict[str, int]:
        """Names of all tokens, added ones too, and their ids."""
        return self._tokenizer.get_vocab()  # type: ignore[no-any-return]

    @property
    def num_ids(self) -> int:
        """One more than the largest id, which `vocab_size` is not where ids are left out."""
        return int(self._end)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of which id stands for what, in hexadecimal: equal for tokenizers whose ids mean the same."""
        names = sorted(self.vocabulary.items(), key=lambda item: item[1])
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def apply_chat_template(
        self,
        messages: Seq[Message],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        special_tokens_in_messages: bool = False,
        **variables: Any,
    ) -> list[int] | str:
        """A conversation as the ids (or text) of a prompt, by the model's chat template or as a plain transcript.

        `special_tokens_in_messages`: the name of a control token in a message is that token, and not text.
        """
        if not add_generation_prompt:
            variables["add_generation_prompt"] = False
        control = None if special_tokens_in_messages else self.control
        asked = render_chat(self.chat_template, messages, variables, control=control)
        return self.encode_chat(asked) if tokenize else asked.text

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text; the first where there are several, None where there is none."""
        return min(self.eos_token_ids, default=None)

    def decode(self, ids: Iterable[int], *, continues: bool = False) -> str:
        """The UTF-8 reading of the tokens' bytes; malformed bytes become U+FFFD."""
        text = b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_space and not continues else text

    def stream(self, *, continues: bool = True) -> TextStream:
        """A reader that holds back half characters."""
        return TextStream(self, continues=continues)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token; empty for special tokens and ids beyond the tokenizer's vocabulary."""
        known = self._bytes.get(token)
        if known is None:
            name = None if token in self.special_ids or token < 0 else self._tokenizer.id_to_token(token)
            known = self._bytes[token] = b"" if name is None else self._spelling.to_bytes(name)
        return known

    @property
    def longest_token(self) -> int:
        """Bytes of the longest token, special ones by their names."""
        if self._longest is None:
            names = (
                self.token_bytes(i) or (self._tokenizer.id_to_token(i) or "").encode() for i in range(self.num_ids)
            )
            self._longest = max(map(len, names), default=1) or 1
        return self._longest

    def token_text(self, token: int) -> str:
        """One token on its own, for tables and log probabilities: special tokens by their name."""
        if token in self.special_ids:
            return str(self._tokenizer.id_to_token(token))
        return self.token_bytes(token).decode("utf-8", "replace")

    def _id_of(self, role: str) -> int | None:
        name = self.special_tokens.get(role)
        try:
            return None if name is None else self._tokenizer.token_to_id(name)
        except UnicodeEncodeError as error:
            raise ModelLoadError(f"tokenizer_config.json: {role}={name!r} holds half a character") from error


def _tokenizer(directory: Path, settings: Mapping[str, Any]) -> Tokenizer:
    """With the added tokens of the settings, and as they say whether names of special tokens in a text are found."""
    whole, vocab, merges = (directory / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if os.path.lexists(whole):
        tokenizer, remedy = read_tokenizer(whole), "take all files of the tokenizer from one model"
    elif vocab.is_file() and merges.is_file():
        tokenizer, remedy = byte_level(read_json(vocab), read_text(merges), settings), cure()
    else:
        raise ModelLoadError("no tokenizer.json here, and not both of vocab.json and merges.txt: nothing encodes text")
    add_tokens(tokenizer, settings, remedy)
    tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))
    return tokenizer
