"""How tokens spell bytes, in the two ways that cover every decoder-only model in use. A tokenizer.json names its own in
the entry `decoder`:

    byte level      GPT-2, NeoX, Llama 3, Qwen     each character of a token is one byte, by GPT-2's table
    byte fallback   Llama 2, Mistral, Gemma        a token is text with U+2581 for a space; <0x0A> is a raw byte

Anything else (WordPiece, CTC, ...) writes no text token by token, and is refused by name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from outdraft.options.errors import ModelLoadError

_RAW_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a tokenizer's tokens spell bytes."""

    to_bytes: Callable[[str], bytes]
    strips_space: bool  # one leading space of the whole text is not part of it


def read_spelling(decoder: Mapping[str, Any] | None) -> Spelling:
    """Understand a tokenizer.json `decoder`; raises `ModelLoadError` naming the part that is not understood."""
    steps = _flatten(decoder)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return Spelling(spell_byte_level, strips_space=False)
    spaces = " "
    raw_bytes, strips = False, False
    if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        raise ModelLoadError(f"tokenizer.json: decoder {twice[0]!r} stands there twice, which is not supported")
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(mark)}, "content": " "}:
                spaces = mark
            case {"type": "Metaspace", "replacement": str(mark)}:
                spaces = mark
                strips = step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True)
            case {"type": "ByteFallback"}:
                raw_bytes = True
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0} if start <= 1:
                strips = start == 1
            case {"type": "Fuse"}:
                pass
            case _:
                raise ModelLoadError(
                    f"tokenizer.json: decoder {step.get('type')!r} is not supported; "
                    "supported are ByteLevel, and Replace/Metaspace with ByteFallback, Fuse and Strip"
                )
    if not steps:
        raise ModelLoadError("tokenizer.json has no decoder: it cannot say how tokens spell text")
    return Spelling(lambda token: _spell_marked(token, spaces, raw_bytes), strips_space=strips)


def spell_byte_level(token: str) -> bytes:
    """Each character is one byte; a token with a character outside the table is plain text (added tokens)."""
    table = byte_of_character()
    if table.keys() >= set(token):
        return bytes(map(table.__getitem__, token))
    return token.encode()


@cache
def byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for U+0100, U+0101, ..."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _spell_marked(token: str, space: str, raw_bytes: bool) -> bytes:
    raw = _RAW_BYTE.fullmatch(token) if raw_bytes else None
    return bytes((int(raw[1], 16),)) if raw else token.replace(space, " ").encode()


def _flatten(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [step for part in decoder["decoders"] for step in _flatten(part)]
    return [decoder]
