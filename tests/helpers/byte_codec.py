"""The simplest codec: a token is a byte, ids 0..255."""

from collections.abc import Iterable

from outdraft.codecs.stream import TextStream


class ByteCodec:
    """Ids 0..255 are the bytes of UTF-8; larger ids stand for nothing. No special tokens unless `eos` names one."""

    encodes = str
    strips_space = False

    def __init__(self, *, vocab_size: int = 256, eos: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(() if eos is None else (eos,))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Iterable[int], *, continues: bool = False) -> str:
        """Malformed UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def stream(self, *, continues: bool = True) -> TextStream:
        """A reader that holds back half characters."""
        return TextStream(self, continues=continues)

    def token_bytes(self, token: int) -> bytes:
        return bytes((token,)) if 0 <= token < 256 and token not in self.eos_token_ids else b""
