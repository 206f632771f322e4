"""The tokenizer that belongs to a model's weights: in its directory, beside a GGUF file, or in that file itself."""

from pathlib import Path

from outdraft.codecs.byte_level import cure, find_unread
from outdraft.codecs.gguf import codec_from_gguf
from outdraft.codecs.text import TextCodec
from outdraft.core.errors import ModelLoadError
from outdraft.weights.gguf import GgufFile


def load_codec(path: Path) -> TextCodec | None:
    """None if there is none. Raises `ModelLoadError` for one that is damaged, or in a form that we do not read."""
    directory = path.parent if path.is_file() else path
    if TextCodec.exists(directory):
        return TextCodec.load(directory)
    if path.is_file():
        return codec_from_gguf(GgufFile(path).get)
    if (unread := find_unread(directory)) is not None:
        raise ModelLoadError(
            f"{directory} has {unread} and no tokenizer.json, from which text is read: {cure(directory)}"
        )
    return None
