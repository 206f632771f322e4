"""A tokenizer.json as a tokenizer of whole texts, and how many tokens a text has at least.

What the file says of batches (`truncation`, `padding`) and of training (`dropout`) would change prompts, so it is taken
out and noted. What the `tokenizers` library would pass over in silence is an error: a key that it does not know, and an
added token that it gives another id than the file does.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_text
from outdraft.options.shown import shown

_LARGEST = 256 << 20  # bytes of a tokenizer.json; the largest that are published have 35 MB


def read_text(path: Path) -> str:
    """Raises `ModelLoadError` for what is no UTF-8, or cannot be read."""
    try:
        return load_text(path, most=_LARGEST)
    except (UnicodeDecodeError, OSError) as error:
        raise ModelLoadError(f"{path.parent.name}/{path.name} is no readable UTF-8 text: {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """An optional JSON object; {} if the file is absent. Raises `ModelLoadError` for a damaged one."""
    if not os.path.lexists(path):
        return {}
    try:
        read = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path.parent.name}/{path.name} is not readable JSON: {error}") from error
    if not isinstance(read, dict):
        raise ModelLoadError(f"{path.parent.name}/{path.name} must hold one JSON object, not a {type(read).__name__}")
    return read


_log = logging.getLogger("outdraft.notes")


def note(where: str, values: Mapping[str, Any], why: str, *, level: int = logging.INFO) -> None:
    """`where`: the file, as "DIR/tokenizer.json"; `values`: by key; nothing is said of none.

    WARNING is for what makes another text than the file's own program would; INFO for all else.
    """
    if values:
        _log.log(level, "%s: %s: %s", where, ", ".join(f"{key}={shown(one)}" for key, one in values.items()), why)


_UNUSED = 1 << 20  # ids without a name that a vocabulary may have
OFF: tuple[object, ...] = (None, False, 0, "", [], {})  # values that say nothing
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MODEL = frozenset(
    """
    type vocab merges dropout unk_token unk_id continuing_subword_prefix end_of_word_suffix fuse_unk
    byte_fallback ignore_merges max_input_chars_per_word
    """.split()
)
_TOKEN = frozenset(("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"))
_EARLIER = ("str_rep", "add_prefix_space")  # of Metaspace, in files of earlier versions: read, and written otherwise


def read_tokenizer(path: Path) -> Tokenizer:
    """Raises `ModelLoadError` for a file that is damaged, or by which a text would become other tokens than it says."""
    described = read_json(path)  # so a cut file gets our message, not a position in a compiled library
    _check_ids(described)
    try:
        tokenizer = _loaded(path, described)
    except Exception as error:  # the library raises bare Exception
        raise ModelLoadError(f"{path.name} is not a tokenizer this version reads: {error}") from error
    for key, value in _unread(tokenizer, described):
        raise ModelLoadError(
            f"{path.name}: {key}={shown(value)} is not known: it may change how text is cut into tokens. If it changes "
            "nothing, delete it from the file"
        )
    for token in described.get("added_tokens") or ():
        if (given := tokenizer.token_to_id(token["content"])) != token["id"]:
            raise ModelLoadError(
                f"{path.name}: the added token {token['content']!r} has the id {token['id']}, and would get the id "
                f"{given}, since ids before it are not there: add tokens for those"
            )
    note(f"{path.parent.name}/{path.name}", make_whole(tokenizer), "left out: a prompt is read whole, always alike")
    return tokenizer


def _loaded(path: Path, described: Mapping[str, Any]) -> Tokenizer:
    """The library numbers added tokens in the order of the file, so they are put into the order of their ids."""
    added = described.get("added_tokens") or []
    ordered = sorted(added, key=itemgetter("id"))
    if ordered == added:
        return Tokenizer.from_file(str(path))
    return Tokenizer.from_str(json.dumps({**described, "added_tokens": ordered}))


def make_whole(tokenizer: Tokenizer) -> dict[str, Any]:
    """Take out what cuts, fills or shuffles a text: the values that were there, by key."""
    model = tokenizer.model
    found = {
        "truncation": tokenizer.truncation,
        "padding": tokenizer.padding,
        "dropout": getattr(model, "dropout", None),
    }
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if found["dropout"] is not None:
        model.dropout = None
    return {key: value for key, value in found.items() if value is not None}


def described_part(part: Any) -> Any:
    """A normalizer, a pre-tokenizer, ... as a tokenizer.json has it; None stays."""
    return None if part is None else json.loads(part.__getstate__())


def describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """The parts of a tokenizer.json but for its tokens and merges, which are long to write and to read."""
    decoded = sorted(tokenizer.get_added_tokens_decoder().items())
    added = [{"id": i, **{key: getattr(one, key) for key in _TOKEN - {"id"}}} for i, one in decoded]
    parts = {name: described_part(getattr(tokenizer, name)) for name in ("normalizer", "pre_tokenizer", "decoder")}
    kind = {"type": type(tokenizer.model).__name__, "byte_fallback": getattr(tokenizer.model, "byte_fallback", False)}
    return {**parts, "model": kind, "added_tokens": added}


def steps_of(part: Mapping[str, Any] | None, name: str) -> list[Mapping[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer; `name`: of its list where it is a sequence."""
    if part is None:
        return []
    return [step for one in part[name] for step in steps_of(one, name)] if part["type"] == "Sequence" else [part]


def _check_ids(described: Mapping[str, Any]) -> None:
    """Raise `ModelLoadError` for an id far beyond the names: the library would take memory for all that lie between."""
    model, added = described.get("model"), described.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocab.values()) if isinstance(vocab, dict) else []
    ids += [one.get("id") for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    most = len(ids) + _UNUSED
    for one in ids:
        if isinstance(one, int) and one > most:
            raise ModelLoadError(f"tokenizer.json: a token has the id {shown(one)}, and there are {len(ids)} tokens")


def _unread(tokenizer: Tokenizer, described: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys that say something and that the library has passed over, with their values."""
    for part in _PARTS:
        yield from _missing(described.get(part), described_part(getattr(tokenizer, part)), part)
    yield from _missing(described["model"], dict.fromkeys(_MODEL), "model")
    for token in described.get("added_tokens") or ():
        yield from _missing(token, dict.fromkeys(_TOKEN), f"added_tokens {token['content']!r}")


def _missing(given: Any, read: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key in read:
                yield from _missing(value, read[key], f"{where}.{key}")
            elif value not in OFF and not (key in _EARLIER and read.get("type") == "Metaspace"):
                yield f"{where}.{key}", value
    elif isinstance(given, list) and isinstance(read, list):
        for number, (one, other) in enumerate(zip(given, read, strict=False)):
            yield from _missing(one, other, f"{where}[{number}]")


SHRINKS = 4  # NFC joins a letter and its marks: bytes become at most so many times fewer
_KEEP = ("ByteLevel", "Digits", "Metaspace")  # pre-tokenizers that leave nothing out


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
    """Whether a normalizer makes a text no shorter than `SHRINKS` allows."""
    match step:
        case {"type": "NFC" | "Prepend"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return len(new.encode()) >= len(old.encode())
    return False
