"""Whether an answer is as it must be: errors in OpenAI's shape and in one clear sentence, streams in their order.

Each function returns what is wrong; nothing, where all is well.
"""

import json
import re
from typing import Any

from lab.soak_http.asked import Kind, Written

_PLACES = re.compile(
    r"0x[0-9a-f]{6}|Traceback|File \"|site-packages|\.py[\"':]|(?<![\w.])/(?:home|usr|tmp|root|var|opt|work)/|\bself\b"
    r"|<[\w.]+ object|pydantic|asyncio|torch\."
)
_LONGEST = 700  # characters of a message


def faults_of_error(status: int, kind: str, body: bytes) -> list[str]:
    """Of an answer whose status is 400 or more."""
    if not kind.startswith("application/json"):
        return [f"status {status} comes as {kind or 'nothing'}: {body[:200]!r}"]
    try:
        told = json.loads(body)
    except ValueError:
        return [f"status {status} has a body that is no JSON: {body[:200]!r}"]
    return [f"status {status}: {one}" for one in faults_of_shape(told)]


def faults_of_shape(told: Any) -> list[str]:
    """Of a body that reports an error."""
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict) or {*told} != {"error"} or {*error} != {"message", "type", "param", "code"}:
        return [f"an error is not in OpenAI's shape: {str(told)[:200]}"]
    message, found = error["message"], []
    if not isinstance(message, str) or len(message.split()) < 3:
        return [f"an error has no clear message: {message!r}"]
    if len(message) > _LONGEST or message != message.strip() or "\n" in message:
        found.append(f"an error's message is not one sentence: {message[:200]!r}")
    if (place := _PLACES.search(message)) is not None:
        found.append(f"an error shows the inside ({place[0]!r}): {message[:300]!r}")
    if not isinstance(error["type"], str) or not error["type"]:
        found.append(f"an error has no type: {message[:100]!r}")
    if not all(one is None or isinstance(one, str) for one in (error["param"], error["code"])):
        found.append(f"param and code are texts or null: {str(error)[:200]}")
    return found


class StreamJudge:
    """Reads a stream's pieces; joins what each text says."""

    def __init__(self, count: int, *, is_chat: bool) -> None:
        self.texts = [""] * count
        self.ids: list[list[int]] = [[] for _ in range(count)]
        self.calls: list[list[Any]] = [[] for _ in range(count)]
        self.ended: list[str | None] = [None] * count
        self.faults: list[str] = []
        self.is_done = False
        self.error: Any = None
        self._is_chat, self._ids = is_chat, set[str]()

    def push(self, piece: Any) -> None:
        """Read the next piece of the stream."""
        if self.is_done:
            self.faults.append(f"a piece stands behind [DONE]: {str(piece)[:100]}")
        elif piece == "[DONE]":
            self.is_done = True
        elif "error" in piece:
            self.error = piece
        elif self.error is not None:
            self.faults.append("a piece stands behind an error")
        else:
            self._ids.add(piece.get("id") or piece.get("request_id"))
            if len(self._ids) > 1:
                self.faults.append(f"the pieces of one stream have several ids: {self._ids}")
            for choice in piece["choices"]:
                self._choice(choice)

    def _choice(self, choice: Any) -> None:
        at = choice["index"]
        if self.ended[at] is not None:
            self.faults.append(f"text {at} goes on behind its end")
        said = choice.get("delta") or {} if self._is_chat else {"content": choice.get("text")}
        self.texts[at] += said.get("content") or ""
        self.calls[at] += [call["function"] for call in said.get("tool_calls") or ()]
        self.ids[at] += choice.get("token_ids") or ()
        self.ended[at] = choice["finish_reason"]


def joined(kind: Kind, judge: StreamJudge) -> Written:
    """What the texts of a stream say."""
    calls = tuple(tuple((one["name"], one["arguments"]) for one in each) for each in judge.calls)
    told = any(judge.ids)
    return Written(
        texts=() if "generate" in kind.path else tuple(judge.texts),
        calls=calls,
        ids=tuple(map(tuple, judge.ids)) if told else None,
    )


def begins(written: Written, right: Written) -> bool:
    """Whether each text, and its ids where they are known, is the beginning of what is right."""
    texts = all(whole.startswith(part) for part, whole in zip(written.texts, right.texts, strict=True))
    calls = all(whole[: len(part)] == part for part, whole in zip(written.calls, right.calls, strict=True))
    if written.ids is None or right.ids is None:
        return texts and calls
    return texts and calls and all(b[: len(a)] == a for a, b in zip(written.ids, right.ids, strict=True))
