"""The official client, unmodified, in many threads at once: every reply is plain decoding's of the same request
alone, with the same seed. Streams that are closed early are cancelled, and were right as far as they went.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import openai
import pytest
from serving import serving

from outdraft import LLM
from outdraft.server.service import Service
from outdraft.weights.hub import resolve
from tests.server.mixed_requests import LONG, Asked, Text, ask, mixed, plain


@pytest.fixture(scope="module")
def drafting(chat_model: Path) -> Iterator[LLM]:
    """Look-ups and a draft model, under the policy that chooses among them."""
    drafters = ["ngram", "suffix", {"method": "draft_model", "model": str(resolve("zoo:draft"))}]
    with LLM(chat_model, drafter={"name": "several", "drafters": drafters}, policy="auto", max_num_seqs=64) as made:
        yield made


@pytest.fixture(scope="module")
def served(drafting: LLM) -> Iterator[tuple[str, Service]]:
    with serving(drafting) as made:
        yield made


def until(holds: Any) -> None:
    """Wait for it; two minutes are more than it ever takes."""
    end = monotonic() + 120
    while not holds():
        assert monotonic() < end
        sleep(0.005)


def all_at_once(address: str, service: Service, requests: list[Asked]) -> list[list[Text]]:
    """The engine begins when all have arrived."""
    goes_on = threading.Event()
    holder = threading.Thread(target=lambda: service.llm._thread.ask(lambda engine: goes_on.wait(60)))
    holder.start()
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
    with ThreadPoolExecutor(len(requests)) as threads:
        replies = [threads.submit(ask, client, one) for one in requests]
        until(lambda: service.num_under_way == len(requests))
        goes_on.set()
        holder.join()
        return [one.result() for one in replies]


def check(served: tuple[str, Service], requests: list[Asked]) -> None:
    address, service = served
    together = all_at_once(address, service, requests)
    until(lambda: not service.num_under_way and not service.llm.engine.has_work)
    for asked, replied in zip(requests, together, strict=True):
        expected = plain(service.llm, service, asked)
        if asked.leaves is None:
            assert replied == expected, asked
            continue
        (whole,), (seen,) = expected, replied
        assert len(seen.ids) < len(whole.ids) == LONG and seen.finish is None, asked
        assert whole.text.startswith(seen.text) and whole.ids[: len(seen.ids)] == seen.ids, asked


def test_sixteen_at_once(served: tuple[str, Service]) -> None:
    check(served, mixed(16, seed=1))


@pytest.mark.slow
def test_sixty_four_at_once(served: tuple[str, Service]) -> None:
    check(served, mixed(64, seed=2))
