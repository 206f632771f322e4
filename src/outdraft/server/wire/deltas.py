"""What an answer says and calls, as a chat's message and as the deltas of a stream."""

from typing import Any

from outdraft.engine.callers.result import Chunk
from outdraft.server.parsers.json_text import Call
from outdraft.server.parsers.message import MessageReader, Said


def message(said: Said) -> dict[str, Any]:
    """The message of a whole reply."""
    told: dict[str, Any] = {"role": "assistant", "content": said.content, "refusal": None}
    if said.reasoning:
        told["reasoning_content"] = said.reasoning
    if said.calls:
        told |= {"content": said.content or None, "tool_calls": [_call(one) for one in said.calls]}
    return told


class Deltas:
    """The deltas of one answer. A call is one delta, because it is sent when it is complete."""

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader
        self.num_calls = 0

    def delta(self, chunk: Chunk) -> dict[str, Any]:
        """What a piece adds; empty where nothing is certain yet."""
        said = self._reader.push(chunk.text, chunk.token_ids, final=chunk.finish_reason is not None)
        told: dict[str, Any] = {}
        if said.reasoning:
            told["reasoning_content"] = said.reasoning
        if said.content:
            told["content"] = said.content
        if said.calls:
            told["tool_calls"] = [{"index": self.num_calls + i, **_call(one)} for i, one in enumerate(said.calls)]
            self.num_calls += len(said.calls)
        return told


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
