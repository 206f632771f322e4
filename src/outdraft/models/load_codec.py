"""The tokenizer that belongs to a model's weights: in its directory, beside a GGUF file, or in that file itself."""

from pathlib import Path

from outdraft.codecs.gguf import codec_from_gguf
from outdraft.codecs.text import TextCodec
from outdraft.weights.gguf import GgufFile


def load_codec(path: Path) -> TextCodec | None:
    """None if there is none that we read."""
    directory = path.parent if path.is_file() else path
    if TextCodec.exists(directory):
        return TextCodec.load(directory)
    return codec_from_gguf(GgufFile(path).get) if path.is_file() else None
