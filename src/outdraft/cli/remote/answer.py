"""A streamed reply of a server as the pieces that an engine of one's own gives, painted by the source of each token."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from outdraft.cli.remote.http import RemoteServer
from outdraft.cli.streamed import Laid, paint
from outdraft.core.events import Source
from outdraft.engine.callers.result import Chunk
from outdraft.engine.counters import PassCosts
from outdraft.engine.stats import RequestStats

_OURS = {  # of outdraft's servers: sources, a chunk for each pass, and figures at the end
    "return_token_ids": True,
    "stream_interval": 0,
    "stream_options": {"include_usage": True},
}


def served_model(server: RemoteServer) -> dict[str, Any]:
    """What is served there, the first model. Raises as `RemoteServer.ask` does."""
    told = server.ask("/v1/models")
    listed = told.get("data") if isinstance(told, dict) else None
    found: dict[str, Any] = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return found


def is_ours(model: dict[str, Any]) -> bool:
    """Whether the server is outdraft's; others are not asked for what they do not know."""
    return model.get("owned_by") == "outdraft"


def answer(
    server: RemoteServer, path: str, body: dict[str, Any], *, ours: bool, colour: bool
) -> Iterator[tuple[Chunk, Text]]:
    """(piece, its text painted) after (piece, its text painted)."""
    laid, ended = Laid(), None
    for piece in server.stream(path, {**body, **(_OURS if ours else {})}):
        for choice in piece.get("choices") or ():
            ended = choice.get("finish_reason") or ended
            text = _shown(choice)
            sources = tuple(Source(one) for one in choice.get("token_sources") or ())
            ids, reason = tuple(choice.get("token_ids") or ()), choice.get("finish_reason")
            chunk = Chunk(text=text, token_ids=ids, sources=sources, finish_reason=reason)
            runs = laid.take(text, list(zip(choice.get("token_texts") or (), sources, strict=False)))
            yield chunk, paint(runs) if colour else Text(text)
        if ours and (told := piece.get("metrics")) is not None:
            stats = _stats(piece["usage"]["completion_tokens"], told["speculative_decoding"])
            yield Chunk(text="", finish_reason=ended, stats=stats), Text()
    if colour and (rest := laid.finish()):
        yield Chunk(text="", finish_reason=ended), paint(rest)


def _stats(num_tokens: int, told: dict[str, Any]) -> RequestStats | None:
    """The server's figures as the engine counts them; None from a server of another version, which gives others."""
    try:
        listed = [dict(one) for one in told["passes_by_rows"]]
        return RequestStats(
            num_tokens=num_tokens,
            num_steps=round(num_tokens / (told["tokens_per_target_pass"] or 1)),
            num_draft_tokens=told["num_draft_tokens"],
            num_accepted_tokens=told["num_accepted_draft_tokens"],
            num_forced_tokens=told["num_forced_tokens"],
            num_rejections=sum(told["first_rejection_histogram"]),
            num_drafted_steps=told["num_spec_steps"],
            rounds_by_method=Counter(told["num_spec_steps_by_method"]),
            by_rows={one.pop("rows"): PassCosts(**one) for one in listed},
            num_shared_passes=told["num_shared_passes"],
            plain_pass=told["plain_pass_seconds"],
            **{f"{name}_seconds": told["seconds"][name] for name in ("draft", "target", "rest")},
        )
    except (KeyError, TypeError):
        return None


def _shown(choice: dict[str, Any]) -> str:
    """A completion's text, or what a chat's delta says, its thoughts before it."""
    delta = choice.get("delta") or {}
    calls = "".join(str(one["function"]) for one in delta.get("tool_calls") or ())
    return (choice.get("text") or "") + (delta.get("reasoning_content") or "") + (delta.get("content") or "") + calls
