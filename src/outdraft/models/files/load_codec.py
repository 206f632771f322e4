"""The tokenizer that belongs to a model's weights: in its directory, beside a GGUF file, or in that file itself.

Ids without a row in the model are an error before weights are read, unless only added tokens have them that nothing
writes (Gemma 3's token for pictures in its models of text alone): those are noted.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.codecs.byte_level import cure, find_unread
from outdraft.codecs.codec import Codec
from outdraft.codecs.gguf import codec_from_gguf, read_roles
from outdraft.codecs.gguf_ends import end_ids
from outdraft.codecs.text import TextCodec
from outdraft.codecs.vocabulary import tokens_from
from outdraft.models.files.gguf_keys import note_unread
from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown
from outdraft.weights.gguf import GgufFile

_log = logging.getLogger(__name__)


def load_codec(path: Path) -> TextCodec | None:
    """None if there is none.

    Raises `ModelLoadError` for one that is damaged, in a form that we do not read, or with tokens that the model of
    the same config.json has no rows for.
    """
    codec, rows = _read(path), _stated_rows(path)
    if codec is None or rows is None or codec.num_ids <= rows:
        return codec
    require_rows(codec, rows, path)
    if unused := tokens_from(codec, rows)[1]:
        names = ", ".join(unused)
        _log.info(
            "%s: the model has %d embeddings, and none for %s: a prompt with it is refused", path.name, rows, names
        )
    return codec


def require_rows(codec: Codec[Any], rows: int, path: Path) -> None:
    """Raise `ModelLoadError` where texts, or what else is encoded, may hold ids that the model has no rows for."""
    if not isinstance(codec, TextCodec):
        if codec.vocab_size > rows:
            raise ModelLoadError(f"{path}: the model has {rows} embeddings, and its codec {codec.vocab_size} ids")
        return
    if codec.num_ids > rows and (used := tokens_from(codec, rows)[0]):
        raise ModelLoadError(
            f"{path}: the model has {rows} embeddings, and its tokenizer has tokens beyond them ({len(used)}, the "
            f"first is {shown(used[0])}): put the tokenizer that belongs to these weights into the directory"
        )


def _stated_rows(path: Path) -> int | None:
    """vocab_size of a directory's config.json or its text part; None where none is stated. Errors come later."""
    try:
        raw = load_json(path / "config.json")
    except (OSError, ValueError):
        return None
    texts = [raw.get("text_config"), raw] if isinstance(raw, Mapping) else []
    sizes = [text.get("vocab_size") for text in texts if isinstance(text, Mapping)]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _read(path: Path) -> TextCodec | None:
    directory = path.parent if path.is_file() else path
    if path.is_file():
        file = GgufFile(path)
        note_unread(file, has_tokenizer=TextCodec.exists(directory))
        if TextCodec.exists(directory):  # often tokenizer.json alone, without what else a directory says of its tokens
            roles, ends = read_roles(file.get, path.name), end_ids(file.get, path.name)
            return TextCodec.load(directory, config=roles, eos_token_ids=ends)
        return codec_from_gguf(file.get, path.name)
    if TextCodec.exists(directory):
        return TextCodec.load(directory)
    if (unread := find_unread(directory)) is not None:
        raise ModelLoadError(
            f"{directory} has {unread} and no tokenizer.json, from which text is read: {cure(directory)}"
        )
    return None
