"""A server over the zoo's target, in a thread of this process, for all tests of a worker."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
import uvicorn
from headless import Page, browser, find

from outdraft import LLM
from outdraft.server.serve import make_config
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings
from tests.server.chatty import QWEN, served, write_model
from tests.server.on_page import fresh

NAME = "target"


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=4) as made:
        yield made


@pytest.fixture(scope="session")
def address(llm: LLM) -> Iterator[str]:
    """Where it listens."""
    service = Service(llm, ServerSettings(served_model_name=(NAME,)))
    server = uvicorn.Server(make_config(service, port=0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with a chat template beside it."""
    return write_model(tmp_path_factory.mktemp("model") / "chat", QWEN)


@pytest.fixture(scope="session")
def chat_llm(chat_model: Path) -> Iterator[LLM]:
    with LLM(chat_model, drafter="ngram") as made:
        yield made


@pytest.fixture(scope="session")
def place(chat_llm: LLM) -> Iterator[str]:
    """Where the model with a template listens."""
    with served(chat_llm, trust_request_chat_template=True) as address:
        yield address


@pytest.fixture
def chat_official(place: str) -> openai.OpenAI:
    """The official client of it."""
    return openai.OpenAI(base_url=f"{place}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser for all tests of a worker."""
    program = find()
    if program is None:
        pytest.skip("no Chromium is installed here")
    with browser(program, tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def page(tab: Page, address: str) -> Page:
    """The page of this server, loaded anew, with nothing remembered."""
    return fresh(tab, address)
