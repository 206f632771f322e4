"""How many tokens a text has at least, by its length alone: enough to refuse one that is far too long unread.

Reading some megabytes takes a tokenizer seconds, and hundreds of megabytes of memory.
"""

from collections.abc import Mapping
from typing import Any

from outdraft.codecs.tokenizer_file import steps_of

SURE = 1 << 14  # characters; a shorter text is read
_SHRINKS = 4  # NFC joins a letter and its marks: bytes become at most so many times fewer
_KEEP = ("ByteLevel", "Digits", "Metaspace")  # pre-tokenizers that leave nothing out


def fewest_tokens(num_characters: int, longest_token: int) -> int:
    """A lower bound, for a tokenizer that `spells_all`. `longest_token`: in bytes."""
    return -(-num_characters // (longest_token * _SHRINKS))


def spells_all(described: Mapping[str, Any]) -> bool:
    """Whether each byte of any text is in one of its tokens: nothing is left out, and no token stands for what is not
    known, however long that is. `described`: a tokenizer.json."""
    model, before = described["model"], steps_of(described.get("pre_tokenizer"), "pretokenizers")
    kinds = [step["type"] for step in before]
    if model.get("type") != "BPE" or not (model.get("byte_fallback") or "ByteLevel" in kinds):
        return False
    return (
        all(step["type"] in _KEEP or _splits(step) for step in before)
        and all(_lengthens(step) for step in steps_of(described.get("normalizer"), "normalizers"))
        and not any(token.get("lstrip") or token.get("rstrip") for token in described["added_tokens"])
    )


def _splits(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Split" and step.get("behavior") != "Removed"


def _lengthens(step: Mapping[str, Any]) -> bool:
    """Whether a normalizer makes a text no shorter than `_SHRINKS` allows."""
    match step:
        case {"type": "NFC" | "Prepend"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return len(new.encode()) >= len(old.encode())
    return False
