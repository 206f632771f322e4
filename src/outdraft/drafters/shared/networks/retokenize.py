"""Two vocabularies: the same text in the ids of a draft model whose tokenizer is not the target's.

    target   [Once][ upon][ a t][ime]       bytes      Once upon a time
    draft    [On][ce][ u][pon][ a] | [ time]           stays | encoded again

Ids are never compared across vocabularies, only the bytes that they stand for. A text grows at its end, so only a short
end is encoded again; what stands before it keeps its ids, which the draft model has in its memory. Timor et al.,
"Accelerating LLM inference with lossless speculative decoding algorithms for heterogeneous vocabularies", 2025,
https://arxiv.org/abs/2502.05202. Data in: target ids; data out: draft ids, and back through `encode_end`.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from outdraft.codecs.codec import TextualCodec
from outdraft.codecs.text import TextCodec
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CapabilityError
from outdraft.weights.hub import resolve

_WINDOW = 24  # bytes at the end of a text that are encoded again when it grows; longer than nearly every token


def load_codecs(model: str, port: TargetPort) -> tuple[TextCodec, TextCodec]:
    """The target's tokenizer and the draft model's. Raises `CapabilityError` naming the one that is missing."""
    if not isinstance(port.origin.codec, TextCodec):
        raise CapabilityError("the target has no tokenizer, so its ids cannot be translated: give it a tokenizer.json")
    directory = resolve(model)
    if not TextCodec.exists(directory):
        raise CapabilityError(f"draft model {model!r} has no tokenizer: put its tokenizer.json beside its weights")
    return port.origin.codec, TextCodec.load(directory)


def spell(codec: TextualCodec, ids: Iterable[int]) -> bytes:
    """The bytes that the ids stand for, laid end to end."""
    return b"".join(map(codec.token_bytes, ids))


def whole_characters(text: bytes) -> str:
    """As much of the text's beginning as is whole characters; malformed bytes end it."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        return text[: error.start].decode()


def encode_end(codec: TextualCodec, text: str) -> list[int] | None:
    """Ids that spell exactly `text`, as it would stand after other text; None if this tokenizer has none.

    A tokenizer may put a space before what it takes for the beginning of a text, so it is shown one that it may keep to
    itself: a space of our own, or a line end whose ids are cut off again.
    """
    wanted = text.encode()
    for shown in (text, text.removeprefix(" "), "\n" + text):
        ids = codec.encode(shown, add_special=False)
        while ids and len(spelled := spell(codec, ids)) >= len(wanted):
            if spelled == wanted:
                return ids
            ids = ids[1:]
    return None


class Retokenized:
    """One sequence's text in the draft model's ids."""

    __slots__ = ("_draft", "_ends", "_hold", "_num_read", "_target", "_text", "held", "ids", "is_whole")

    def __init__(self, target: TextualCodec, draft: TextualCodec, *, hold_spaces: bool = False) -> None:
        self._target, self._draft = target, draft
        self._hold = " " if hold_spaces else ""
        self._text = b""
        self._num_read = 0  # target tokens
        self.ids: list[int] = []  # in the draft's vocabulary, the start token included if it wants one
        self._ends: list[int] = []  # bytes of the text up to and with each id
        self.held = 0  # spaces at the text's end that `ids` leave out: most tokens begin with their space
        self.is_whole = False  # whether the text ends with a whole character; then `ids` and what is held spell its end

    def update(self, tokens: Seq[int]) -> None:
        """`tokens` is the whole text so far in the target's ids."""
        new = spell(self._target, tokens[self._num_read :])
        if self._num_read == 0 and self._target.strips_space:
            new = new.removeprefix(b" ")
        self._num_read = len(tokens)
        self._text += new
        if new or not self.ids:
            self._encode()

    def _encode(self) -> None:
        """Ids from a place shortly before the end; or, if they do not spell the text there, from its beginning."""
        kept = next((i for i in range(len(self.ids), 0, -1) if self._may_begin(self._ends[i - 1])), 0)
        if kept:
            begin = self._ends[kept - 1]
            text = self._usable(begin)
            ids = encode_end(self._draft, text)
            if ids is not None:
                self._take(kept, ids, begin + len(text.encode()))
                return
        text = self._usable(0)
        self._take(0, self._draft.encode(text), len(text.encode()))

    def _usable(self, begin: int) -> str:
        """The text from `begin` on, without half a character at its end, and without what is held back."""
        text = whole_characters(self._text[begin:])
        shown = text.rstrip(self._hold) if self._hold else text
        self.held = len(text) - len(shown)
        return shown

    def _take(self, kept: int, ids: list[int], stop: int) -> None:
        del self.ids[kept:], self._ends[kept:]
        at = self._ends[-1] if self._ends else 0
        first = self._draft.strips_space and not kept  # the first token spells a space that the text has not
        for token in ids:
            size = len(self._draft.token_bytes(token))
            if first and size:
                size, first = size - 1, False
            at += size
            self.ids.append(token)
            self._ends.append(at)
        if at != stop:  # characters that this vocabulary does not have: only the end is a place that both know
            self._ends[kept:] = [stop] * len(ids)
        self.is_whole = stop + self.held == len(self._text)

    def _may_begin(self, place: int) -> bool:
        """Whether ids may be kept up to here: far enough from the end, and no character is cut."""
        if place > len(self._text) - _WINDOW or not 0 < place < len(self._text):
            return False
        return self._text[place] & 0xC0 != 0x80


class RetokenizedDrafter(ModelDrafter):
    """A drafter whose model has a vocabulary of its own: the texts in the model's ids. `codecs`: the target's, its."""

    def __init__(self, model: DraftModel, codecs: tuple[TextualCodec, TextualCodec], *, hold_spaces: bool) -> None:
        super().__init__(model)
        self._codecs, self._hold = codecs, hold_spaces
        self._texts: dict[int, Retokenized] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        super().begin(seqs)
        for seq in seqs:
            self._texts[seq.id] = Retokenized(*self._codecs, hold_spaces=self._hold)

    def end(self, seqs: Seq[Sequence]) -> None:
        super().end(seqs)
        for seq in seqs:
            self._texts.pop(seq.id, None)

    def read(self, seq: Sequence) -> list[int]:
        """The text so far in the model's ids; none where it ends within a character."""
        text = self._texts[seq.id]
        text.update(seq.tokens)
        return text.ids if text.is_whole else []
