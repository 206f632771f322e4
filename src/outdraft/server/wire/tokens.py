"""The tokens of an answer, each beside its own text, and the draft of a round.

For clients that ask with `return_token_ids`: ids, sources, and the text of each.

    token_ids      [4711, 12]
    token_sources  ["accepted", "bonus"]
    token_texts    [" was", " late"]      a character spread over several tokens stands with the one that ends it

Texts join to what the answer's tokens say; a stop string may cut the answer itself short of it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from outdraft.codecs.stream import TextStream
from outdraft.codecs.text import TextCodec
from outdraft.core.draft_tree import DraftTree
from outdraft.core.events import Source
from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.callers.result import Chunk, Result
from outdraft.server.wire.logprobs import number


def spelled(ids: Iterable[int], codec: TextCodec) -> list[str]:
    """What each token of a text adds to it where special tokens stand by their names."""
    stream, texts = codec.stream(continues=False), []
    for token in ids:
        is_special = token in codec.special_ids
        texts.append(stream.finish() + codec.token_text(token) if is_special else stream.push(token))
    if texts:
        texts[-1] += stream.finish()
    return texts


class TokensTold:
    """Of one request's texts. `codec`: None where the model has no tokenizer; the texts are then left out."""

    def __init__(self, codec: TextCodec | None) -> None:
        self._codec = codec
        self._streams: dict[int, TextStream] = {}  # a text's half-read character

    def of(self, text: Chunk | Result, index: int) -> dict[str, Any]:
        """The fields of a piece, or of a whole text. `index`: which text of the request it belongs to."""
        told: dict[str, Any] = {"token_ids": list(text.token_ids), "token_sources": list(text.sources)}
        if self._codec is None:
            return told
        stream = self._streams.setdefault(index, self._codec.stream())
        texts = [stream.push(token) for token in text.token_ids]
        if text.finish_reason is not None and texts:
            texts[-1] += stream.finish()
        return {**told, "token_texts": texts}


class ByToken:
    """Chunks of any size of one text as one for each token, so that what is reported of it stands beside its own text.

    chunks   "It was", 2 tokens    "", 1 token    "n't", 1 token        where a stop string begins with "n"
    pieces   "It"  " was"                         "n"  "'t"             a token waits for its text

    A token that ends within a character has no text, and text that is cut off belongs to no token.
    """

    def __init__(self, codec: TextCodec) -> None:
        self._stream = codec.stream()
        self._waiting: deque[tuple[int, int, tuple[TokenLogprobs, ...]]] = deque()  # token, characters, logprobs
        self._text = ""  # that came, and is no piece yet

    def push(self, chunk: Chunk) -> Iterator[Chunk]:
        """The pieces that are complete with this chunk; of the last chunk, one more that ends the text."""
        self._text += chunk.text
        resumed = len(chunk.token_ids) - len(chunk.logprobs)  # tokens without log probabilities
        for i, token in enumerate(chunk.token_ids):
            own = chunk.logprobs[i - resumed : i - resumed + 1] if i >= resumed else ()
            self._waiting.append((token, len(self._stream.push(token)), own))
        is_last = chunk.finish_reason is not None
        while self._waiting and (is_last or self._waiting[0][1] <= len(self._text)):
            token, size, own = self._waiting.popleft()
            yield Chunk(text=self._text[:size], token_ids=(token,), logprobs=own)
            self._text = self._text[size:]
        if is_last:
            yield replace(chunk, text=self._text, token_ids=(), logprobs=())


def draft_tree(tree: DraftTree | None, codec: TextCodec | None) -> dict[str, Any] | None:
    """The draft of a round as a reply or a chunk gives it, for requests with `return_draft_tree`.

        {"drafted_by": "ngram",
         "nodes": [{"token_id": 7, "text": " the", "parent": null, "status": "pending"},
                   {"token_id": 9, "text": " old", "parent": 0, "status": "accepted", "confidence": 0.8}, ...],
         "token_id": 4, "text": " man", "source": "bonus"}

    The last three are of the target's own token, which ended the round (core/draft_tree.py). None where no round has
    been; without a codec there are no texts.
    """
    if tree is None:
        return None
    nodes: list[dict[str, Any]] = []
    for i, (token, parent, status) in enumerate(zip(tree.tokens, tree.parents, tree.statuses, strict=True)):
        node = {**_token(token, codec), "parent": parent if parent >= 0 else None, "status": status}
        if tree.confidence is not None and i:
            node["confidence"] = number(tree.confidence[i])
        nodes.append(node)
    has_draft = len(tree.tokens) > 1
    source = Source.PLAIN if not has_draft else Source.BONUS if tree.is_bonus else Source.RECOVERED
    return {"drafted_by": tree.drafted_by or None, "nodes": nodes, **_token(tree.token, codec), "source": source}


def _token(token: int, codec: TextCodec | None) -> dict[str, Any]:
    return {"token_id": token} if codec is None else {"token_id": token, "text": codec.token_text(token)}
