"""The items of a response as they are written, and the events that report them.

    reasoning       item.added  part.added  reasoning_text.delta ...       .done  part.done  item.done
    message         item.added  part.added  output_text.delta ...          .done  part.done  item.done
    function_call   item.added              function_call_arguments.delta  .done             item.done

A whole reply is made by the same code, so that its items are those that a stream ends with.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from outdraft.server.parsers.json_text import WrittenCall
from outdraft.server.parsers.message import Said
from outdraft.server.schema.items import sealed
from outdraft.server.service import new_id

Event = dict[str, Any]
Logprobs = list[dict[str, Any]]


class ResponseItems:
    """Of one response. At most one item is open."""

    def __init__(self, *, seals: bool) -> None:
        """`seals`: thoughts are given in a form to send back, too."""
        self.items: list[dict[str, Any]] = []
        self._seals = seals
        self._is_open = False
        self._waiting: Logprobs = []  # of tokens whose text is not certain yet

    def push(self, said: Said, logprobs: Logprobs) -> Iterator[Event]:
        self._waiting += logprobs
        if said.reasoning:
            yield from self._write("reasoning", said.reasoning)
        for part in said.parts:
            if isinstance(part, WrittenCall):
                yield from self.close("completed")
                yield from self._call(part)
            else:
                yield from self._write("message", part)

    def finish(self, status: str) -> Iterator[Event]:
        """Nothing more comes. `status`: of what is unfinished; an answer without a word is an empty message."""
        if not self.items:
            yield from self._open("message")
        if self._waiting and self._is_open and self.items[-1]["type"] == "message":
            yield from self._write("message", "")
        yield from self.close(status)

    def _write(self, kind: str, text: str) -> Iterator[Event]:
        if not self._is_open or self.items[-1]["type"] != kind:
            yield from self.close("completed")
            yield from self._open(kind)
        part = self.items[-1]["content"][0]
        part["text"] += text
        delta: Event = {"type": f"response.{part['type']}.delta", **self._place(), "content_index": 0, "delta": text}
        if kind == "message":
            delta["logprobs"], self._waiting = self._waiting, []
            part["logprobs"] += delta["logprobs"]
        yield delta

    def _open(self, kind: str) -> Iterator[Event]:
        if kind == "message":
            item: dict[str, Any] = {"id": new_id("msg_"), "type": kind, "role": "assistant", "content": []}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item = {"id": new_id("rs_"), "type": kind, "summary": [], "content": []}
            part = {"type": "reasoning_text", "text": ""}
        yield from self._add(item)
        item["content"].append(part)
        yield {"type": "response.content_part.added", **self._place(), "content_index": 0, "part": deepcopy(part)}

    def _add(self, item: dict[str, Any]) -> Iterator[Event]:
        self.items.append({**item, "status": "in_progress"})
        self._is_open = True
        shown = {"output_index": len(self.items) - 1, "item": deepcopy(self.items[-1])}
        yield {"type": "response.output_item.added", **shown}

    def _call(self, call: WrittenCall) -> Iterator[Event]:
        """A call is sent at once, because it is certain when it is complete; no event has its log probabilities."""
        self._waiting = []
        made = {"id": new_id("fc_"), "type": "function_call", "call_id": call.id, "name": call.name, "arguments": ""}
        yield from self._add(made)
        self.items[-1]["arguments"] = call.arguments
        yield {"type": "response.function_call_arguments.delta", **self._place(), "delta": call.arguments}
        yield {
            "type": "response.function_call_arguments.done",
            **self._place(),
            "name": call.name,
            "arguments": call.arguments,
        }
        yield from self._done("completed")

    def close(self, status: str) -> Iterator[Event]:
        """End the item that is open, if one is. `status`: its state then."""
        if not self._is_open:
            return
        item, place = self.items[-1], {**self._place(), "content_index": 0}
        part = deepcopy(item["content"][0])
        done: Event = {"type": f"response.{part['type']}.done", **place, "text": part["text"]}
        yield done | ({"logprobs": part["logprobs"]} if item["type"] == "message" else {})
        yield {"type": "response.content_part.done", **place, "part": part}
        if item["type"] == "reasoning" and self._seals:
            item["encrypted_content"] = sealed(part["text"])
        yield from self._done(status)

    def _done(self, status: str) -> Iterator[Event]:
        self._is_open = False
        self.items[-1]["status"] = status
        shown = {"output_index": len(self.items) - 1, "item": deepcopy(self.items[-1])}
        yield {"type": "response.output_item.done", **shown}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
