"""Ways to ask an engine: a batch, one after the other, open streams in turn, threads, asyncio; some neighbours leave.

Data in: an `LLM` and `Ask`s; data out: one `Text` for each ask, in order, and the beginnings that leavers have seen.
"""

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lab.fuzz.asks import Ask
from outdraft import LLM, Chunk, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What an engine wrote. `whole`: it was not cancelled."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    logprobs: tuple[Any, ...] | None
    num_accepted: int = 0
    num_drafted: int = 0
    whole: bool = True


def run(llm: LLM, shape: str, asks: Seq[Ask], leavers: Seq[Ask] = (), **per_request: Any) -> list[Text]:
    """Texts of `asks`, then of `leavers`."""
    return _SHAPES[shape](llm, [*asks, *leavers], per_request)


def _batch(llm: LLM, asks: list[Ask], per_request: dict[str, Any]) -> list[Text]:
    results = llm.generate([_prompt(ask) for ask in asks], [ask.params for ask in asks], **per_request)
    return [_from_result(result) for result in results]


def _alone(llm: LLM, asks: list[Ask], per_request: dict[str, Any]) -> list[Text]:
    return [_from_result(llm.generate(_prompt(ask), ask.params, **per_request)) for ask in asks]


def _streams(llm: LLM, asks: list[Ask], per_request: dict[str, Any]) -> list[Text]:
    """All open at once, read a chunk at a time in turn."""
    open_ones = [(ask, llm.stream(_prompt(ask), ask.params, **per_request)) for ask in asks]
    read: list[list[Chunk]] = [[] for _ in asks]
    waiting = list(range(len(asks)))
    while waiting:
        for i in list(waiting):
            ask, stream = open_ones[i]
            chunk = next(stream, None) if len(read[i]) != ask.leaves_after else None
            if chunk is None:
                stream.close()  # type: ignore[attr-defined]  # a generator
                waiting.remove(i)
            else:
                read[i].append(chunk)
    return [_from_chunks(chunks) for chunks in read]


def _threads(llm: LLM, asks: list[Ask], per_request: dict[str, Any]) -> list[Text]:
    def one(ask: Ask) -> Text:
        if ask.leaves_after is None and len(ask.prompt) % 2:
            return _from_result(llm.generate(_prompt(ask), ask.params, **per_request))
        stream = llm.stream(_prompt(ask), ask.params, **per_request)
        return _from_chunks(list(_until(stream, ask.leaves_after)))

    pool = ThreadPoolExecutor(len(asks))
    try:
        return list(pool.map(one, asks))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a request that hangs is not waited for


def _until(stream: Iterator[Chunk], count: int | None) -> Iterator[Chunk]:
    try:
        while count is None or count > 0:
            chunk = next(stream, None)
            if chunk is None:
                return
            yield chunk
            count = None if count is None else count - 1
    finally:
        stream.close()  # type: ignore[attr-defined]  # a generator


def _asyncio(llm: LLM, asks: list[Ask], per_request: dict[str, Any]) -> list[Text]:
    async def one(ask: Ask) -> Text:
        if ask.leaves_after is None:
            return _from_result(await llm.agenerate(_prompt(ask), ask.params, **per_request))
        task = asyncio.ensure_future(llm.agenerate(_prompt(ask), ask.params, **per_request))
        await asyncio.sleep(0.002 * ask.leaves_after)
        task.cancel()
        with suppress(asyncio.CancelledError):
            return _from_result(await task)
        return _from_chunks([])

    async def all_of_them() -> list[Text]:
        return list(await asyncio.gather(*map(one, asks)))

    return asyncio.run(all_of_them())


_SHAPES: dict[str, Callable[[LLM, list[Ask], dict[str, Any]], list[Text]]] = {
    "batch": _batch,
    "alone": _alone,
    "streams": _streams,
    "threads": _threads,
    "async": _asyncio,
}


def _prompt(ask: Ask) -> dict[str, Any]:
    beside = {} if ask.negative is None else {"negative_prompt": list(ask.negative)}
    return {"prompt_token_ids": list(ask.prompt), **beside}


def _from_result(result: Result) -> Text:
    return Text(
        token_ids=result.token_ids,
        text=result.text,
        finish_reason=result.finish_reason,
        logprobs=result.logprobs,
        num_accepted=result.stats.num_accepted_tokens,
        num_drafted=result.stats.num_draft_tokens,
    )


def _from_chunks(chunks: list[Chunk]) -> Text:
    """The pieces of a stream, joined."""
    stats = chunks[-1].stats if chunks else None
    reason = chunks[-1].finish_reason if chunks else None
    logprobs = tuple(one for chunk in chunks for one in chunk.logprobs)
    return Text(
        token_ids=tuple(token for chunk in chunks for token in chunk.token_ids),
        text="".join(chunk.text for chunk in chunks),
        finish_reason=reason,
        logprobs=logprobs,
        num_accepted=stats.num_accepted_tokens if stats else 0,
        num_drafted=stats.num_draft_tokens if stats else 0,
        whole=reason is not None,
    )
