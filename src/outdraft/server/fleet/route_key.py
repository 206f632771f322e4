"""What of a request decides where it is warm: hashes of the pages of its prompt, and the group that it belongs to.

    pages    a chain of hashes: page i stands for everything up to its end, so equal hashes mean equal beginnings.
             Prompts of token ids are cut as the key/value cache cuts them (16 tokens; `cache/page_events.py`); texts
             and conversations, which are not tokenized yet, into 64 bytes, which are about as many tokens
    group    what the client calls `prompt_cache_key`: requests that are alike though they begin differently, whose
             answers teach one drafter's memory

A key of the API is the beginning of every chain, because nothing is shared between keys.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from outdraft.cache.page_events import page_hash, root_hash
from outdraft.core.cache import PAGE

TEXT_PAGE = 64  # bytes
_MOST = 512  # pages that are looked at: longer prompts that begin alike so far are alike enough


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteKey:
    """Data of a decision; nothing of the prompt can be read from it."""

    pages: tuple[int, ...] = ()
    group: int | None = None


def route_key(body: Any, authorization: bytes = b"") -> RouteKey:
    """The key of a request's body, as JSON has it; an empty one for a request without a prompt."""
    if not isinstance(body, dict):
        return RouteKey()
    own = body.get("cache_salt")  # joined to the key as `Service.open` joins them
    root = root_hash(f"{authorization.decode('latin-1')}/{own or ''}" if authorization or own else None)
    named = body.get("prompt_cache_key")
    group = _chained(root, str(named).encode()) if named else None
    return RouteKey(pages=tuple(_pages(body, root)), group=group)


def _pages(body: dict[str, Any], root: int) -> Iterator[int]:
    before = root
    for page in _cut(_prompt(body)):
        before = _chained(before, page) if isinstance(page, bytes) else page_hash(before, page)
        yield before


def _prompt(body: dict[str, Any]) -> Any:
    """Bytes or token ids."""
    if "messages" in body:
        return orjson.dumps([body.get("tools"), body["messages"]])
    prompt = body.get("token_ids") or body.get("prompt") or body.get("input") or ""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], list | str):
        prompt = prompt[0]  # several prompts go to one place, which is the first one's
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        return prompt
    return prompt.encode("utf-8", "replace") if isinstance(prompt, str) else orjson.dumps(prompt)


def _cut(prompt: Seq[int] | bytes) -> Iterator[Any]:
    """The prompt in pages; what does not fill one is left out."""
    size = TEXT_PAGE if isinstance(prompt, bytes) else PAGE
    for start in range(0, min(len(prompt), size * _MOST) - size + 1, size):
        yield prompt[start : start + size]


def _chained(before: int, page: bytes) -> int:
    return int.from_bytes(blake2b(page, digest_size=8, key=before.to_bytes(8, "little")).digest(), "little")
