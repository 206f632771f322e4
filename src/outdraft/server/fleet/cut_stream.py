"""One stream whose replica may die: what the client has got, what to ask another replica, and what of its reply is new.

    replica A    data: It     data: was      data: late           the machine dies
    client       data: It     data: was      data: late
    replica B                                                     data: It was late (dropped)      data: in ...

The second request names what was written (`resume_token_ids`), so B's stream begins with exactly that, in one piece
for each text, and everything up to there is dropped: marks, calls and thoughts in it were sent before, too. A sampled
stream without a seed gets one, without which no other machine could go on with it.
"""

import secrets
from typing import Any

import orjson

_TELLS = {"/v1/completions": True, "/v1/chat/completions": True, "/inference/v1/generate": False}
_HIDDEN = ("token_ids", "token_sources", "token_texts", "prompt_token_ids")


def can_resume(path: str, body: Any) -> bool:
    """Whether this is a stream that another replica can go on with; a malformed one is the replica's to refuse."""
    if path not in _TELLS or not isinstance(body, dict) or body.get("stream") is not True:
        return False
    settings, written = body.get("sampling_params") or {}, body.get("resume_token_ids") or []
    return isinstance(settings, dict) and isinstance(written, list)


class CutStream:
    """Of a stream that `can_resume`."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        asks_for_ids = _TELLS[path]
        self._hides = asks_for_ids and not body.get("return_token_ids")
        self._body = {**body, "return_token_ids": True} if asks_for_ids else dict(body)
        settings = self._body if asks_for_ids else dict(self._body.get("sampling_params") or {})
        if settings.get("seed") is None and settings.get("temperature") != 0:
            settings["seed"] = secrets.randbits(62)
        if not asks_for_ids:
            self._body["sampling_params"] = settings
        given = self._body.get("resume_token_ids") or []  # the client goes on with a stream itself
        self._given = {i: list(ids) for i, ids in enumerate(given) if isinstance(ids, list)}
        n = settings.get("n")
        self._num_texts = max(1, n if isinstance(n, int) else 1) * _num_prompts(body)
        self._written: dict[int, list[int]] = {}  # token ids of each text that the client has got
        self._headed: set[int] = set()  # texts whose first event, without tokens, has been sent
        self._over: set[int] = set()  # texts whose end has been sent
        self._owed: dict[int, int] = {}  # tokens of each text that come again
        self._first: dict[str, Any] = {}  # id and time, which stay those of the first replica
        self._is_again = False

    def again(self) -> None:
        """The replica has died: another one is asked from now on."""
        self._is_again = True
        resumed = [self._resumed(i) for i in range(self._num_texts)]
        self._owed = {i: len(ids) for i, ids in enumerate(resumed) if i in self._written}
        if any(resumed):
            self._body["resume_token_ids"] = resumed

    def body(self) -> bytes:
        return orjson.dumps(self._body)

    def take(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """What the client gets of an event; None: nothing, it has it already."""
        choices = event.get("choices")
        if choices and not self._is_new(choices[0]):
            return None
        if choices:
            self._count(choices[0])
            if self._hides and not self._show(event, choices[0]):
                return None
        named: dict[str, Any] = {name: event[name] for name in ("id", "request_id", "created") if name in event}
        self._first = self._first or named
        return {**event, **{name: self._first[name] for name in named if name in self._first}}

    def _resumed(self, i: int) -> list[int]:
        """A text that is over is asked for without its last token, so that it ends again."""
        ids = self._written.get(i, self._given.get(i, []))
        return ids[:-1] if i in self._over else ids

    def _is_new(self, choice: dict[str, Any]) -> bool:
        index, ids = choice["index"], choice.get("token_ids") or []
        if not self._is_again:
            return True
        if index in self._over or (not ids and index in self._headed and choice.get("finish_reason") is None):
            return False
        if self._owed.get(index, 0):
            self._owed[index] -= len(ids)
            return False
        return True

    def _count(self, choice: dict[str, Any]) -> None:
        index = choice["index"]
        self._headed.add(index)
        self._written.setdefault(index, []).extend(choice.get("token_ids") or [])
        if choice.get("finish_reason") is not None:
            self._over.add(index)

    def _show(self, event: dict[str, Any], choice: dict[str, Any]) -> bool:
        """Take out what was asked for the resumption alone; false if nothing is left to say."""
        for name in _HIDDEN:
            choice.pop(name, None)
            event.pop(name, None)
        if choice.get("delta") != {} or choice.get("finish_reason") is not None:
            return True
        return bool(choice.get("logprobs") or event.get("prompt_logprobs"))


def _num_prompts(body: dict[str, Any]) -> int:
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], list | str) else 1
