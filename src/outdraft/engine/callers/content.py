"""One request's output where its ids are no text: the codec's pieces as they are written, and the whole at the end."""

from dataclasses import replace
from typing import Any

from outdraft.codecs.codec import Codec
from outdraft.core.sequence import Sequence
from outdraft.engine.callers.result import Result
from outdraft.engine.callers.writer import Writer


class ContentWriter(Writer):
    """Of a codec without text: its chunks have pieces, and its result the whole."""

    def __init__(self, seq: Sequence, codec: Codec[Any], stops: None, **others: Any) -> None:
        self._codec = codec
        self._pieces: list[Any] = []
        super().__init__(seq, codec, stops, **others)

    def result(self) -> Result:
        """Everything written so far, as the codec decodes it."""
        kept = [token for token in self._ids if token not in self.seq.ends]
        return replace(super().result(), content=self._codec.decode(kept))

    def _tell(self) -> None:
        super()._tell()
        self.chunks[-1] = replace(self.chunks[-1], pieces=tuple(self._pieces))
        self._pieces.clear()

    def _take(self, piece: Any) -> None:
        self._pieces.append(piece)
