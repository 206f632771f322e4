"""Two engines over the zoo's target with different drafters, as two machines would have them."""

from collections.abc import Iterator

import pytest

from outdraft import LLM
from outdraft.server.app import make_app
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings

SETTINGS = ServerSettings(served_model_name=("target",))


@pytest.fixture(scope="session")
def apps() -> Iterator[list]:
    with LLM("zoo:target", drafter="ngram", num_speculative_tokens=4) as one, LLM("zoo:target", drafter="none") as two:
        yield [make_app(Service(llm, SETTINGS)) for llm in (one, two)]
