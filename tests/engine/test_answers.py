"""The texts of several prompts as they are written, from asyncio."""

import asyncio
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from outdraft import LLM, SamplingParams
from outdraft.core.events import StepEvent
from outdraft.engine.callers.call import Call
from outdraft.engine.callers.prompts import PromptReader
from outdraft.engine.callers.thread import EngineThread
from outdraft.options.errors import RequestError

PARAMS = SamplingParams(max_tokens=12, temperature=1.0, seed=3, n=2)
PROMPTS = ["It was late when", "The house"]


def test_pieces_join_to_what_generate_writes() -> None:
    async def pieces(llm: LLM) -> dict[tuple[int, int], str]:
        texts: dict[tuple[int, int], str] = {}
        answers = await llm.open(PROMPTS, PARAMS)
        async for place, chunk in answers:
            assert chunk.index == place.index
            texts[place.prompt, place.index] = texts.get((place.prompt, place.index), "") + chunk.text
        assert [[text.text for text in one.outputs] for one in answers.results()] == [
            [texts[i, 0], texts[i, 1]] for i in range(2)
        ]
        return texts

    with LLM("zoo:target") as llm:
        found = asyncio.run(pieces(llm))
        whole = llm.generate(PROMPTS, PARAMS)
    assert found == {(i, j): text.text for i, one in enumerate(whole) for j, text in enumerate(one.outputs)}


@pytest.mark.parametrize("awaits", [True, False])
def test_no_text_waits_for_one_that_has_not_begun(monkeypatch: pytest.MonkeyPatch, awaits: bool) -> None:
    """The engine begins the second text only once all of the first has been read."""
    is_read, found = Event(), list[int]()

    def note(index: int) -> None:
        found.append(index)
        if len(found) == 6:
            is_read.set()

    async def read(llm: LLM) -> None:
        async for place, _ in await llm.open(PROMPTS, SamplingParams(max_tokens=6)):
            note(place.prompt)

    with LLM("zoo:target", drafter="none", max_num_seqs=1) as llm:
        step = llm.engine.step

        def waiting() -> list[StepEvent]:
            assert len(llm.engine.waiting) + len(llm.engine.running) == 2 or is_read.wait(timeout=10)
            return step()

        monkeypatch.setattr(llm.engine, "step", waiting)
        if awaits:
            asyncio.run(read(llm))
        else:
            for chunk in llm.stream(PROMPTS[0], SamplingParams(max_tokens=6, n=2, temperature=1, ignore_eos=True)):
                note(chunk.index)
    assert found == [0] * 6 + [1] * 6


def test_an_engine_that_is_as_quick_as_its_reader_does_not_keep_it_at_one_text() -> None:
    class Slow:
        """A reader of a text, during each of whose events another step comes to its end."""

        seq: Any = None
        finish_reason = None
        read = 0

        def push(self, event: StepEvent) -> None:
            self.read += 1
            if self.read < 9:
                call.outbox.post(event)

    slow: Any = Slow()
    call = Call(slow, SimpleQueue(), streams=True)
    call.outbox.post(StepEvent(seq_id=0, tokens=(1,)))
    call.read()
    assert slow.read == 1
    call.read()
    assert slow.read == 2


def test_one_refused_prompt_refuses_all() -> None:
    async def ask(llm: LLM) -> None:
        await llm.open(["fine", {"prompt_token_ids": []}], PARAMS)

    with LLM("zoo:target") as llm:
        with pytest.raises(RequestError, match="empty"):
            asyncio.run(ask(llm))
        assert not llm.engine.running and not len(llm.engine.waiting)


def test_leaving_cancels() -> None:
    async def leave(llm: LLM) -> None:
        answers = await llm.open(PROMPTS, SamplingParams(max_tokens=None))
        async for _ in answers:
            break
        answers.leave()

    with LLM("zoo:target") as llm:
        asyncio.run(leave(llm))
        assert llm.generate("x", SamplingParams(max_tokens=2)).token_ids  # the engine has looked at its messages
        assert not llm.engine.running


def test_leaving_while_a_prompt_is_read_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads it cannot be stopped."""
    is_read, has_left, is_made = Event(), Event(), Event()

    def slowly(*given: Any) -> Any:
        is_read.set()
        assert has_left.wait(timeout=10)
        return requests(*given)

    def noted(*given: Any, **words: Any) -> Any:
        calls = submit(*given, **words)
        is_made.set()
        return calls

    async def leave(llm: LLM) -> None:
        asked = asyncio.ensure_future(llm.open(PROMPTS, SamplingParams(max_tokens=None)))
        await asyncio.to_thread(is_read.wait)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        has_left.set()
        await asyncio.to_thread(is_made.wait)
        assert (await llm.agenerate("x", SamplingParams(max_tokens=2))).token_ids
        assert not llm.engine.running and not len(llm.engine.waiting)

    requests, submit = PromptReader.requests, EngineThread.submit
    with LLM("zoo:target") as llm:
        monkeypatch.setattr(PromptReader, "requests", slowly)
        monkeypatch.setattr(EngineThread, "submit", noted)
        asyncio.run(leave(llm))


def test_what_stopped_a_text_is_given() -> None:
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=4) as llm:
        whole = llm.generate(PROMPTS[0], SamplingParams(max_tokens=12))
        word, token = whole.text.split()[3], whole.token_ids[5]
        assert whole.stop_reason is None
        assert llm.generate(PROMPTS[0], SamplingParams(max_tokens=12, stop=word)).stop_reason == word
        assert llm.generate(PROMPTS[0], SamplingParams(max_tokens=12, stop_token_ids=[token])).stop_reason == token
