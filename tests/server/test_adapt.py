"""A server whose draft learns: what its page shows, and how many tenants one key may open."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from headless import Page

from outdraft import LLM, zoo
from outdraft.adapt.room import SHARED, AdaptRoom
from outdraft.adapt.spool import spool_files
from tests.server.chatty import served
from tests.server.on_page import PROMPT, count, fresh, send

KEYS = ("first", "second")


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[LLM]:
    adapt = {"room": str(tmp_path / "room"), "learner": False, "tenants_a_key": 2}
    with LLM("zoo:target", drafter="eagle3", head="zoo:eagle3", num_speculative_tokens=3, adapt=adapt) as made:
        yield made


@pytest.fixture
def room(learning: LLM, tmp_path: Path) -> AdaptRoom:
    return AdaptRoom(tmp_path / "room")


def test_the_page_shows_how_the_draft_fares(learning: LLM, room: AdaptRoom, tab: Page) -> None:
    with served(learning) as address:
        page = fresh(tab, address)
        page.wait("document.querySelector('#adapt-version').textContent !== '–'")
        assert (
            "The draft that learns" in page.text()
            and page.text("#adapt-version") == "0, the first"
            and page.text("#adapt-kept") == "0"
        )
        assert page.text("#adapt-verdict") == "No candidate was judged yet." and count(page, "#adapt .bar") == 0
        send(page, PROMPT)
        page.wait("document.querySelectorAll('#adapt .bar').length")
        told = learning.adapting.status()
        rates = zip(told["acceptance"], told["marginal_acceptance"], strict=True)
        spoken = [f"position {i}: {int(a * 100 + 0.5)} %, {int(b * 100 + 0.5)} %" for i, (a, b) in enumerate(rates, 1)]
        assert page.ask("document.querySelector('#adapt-chart').ariaLabel") == "; ".join(spoken)
        assert page.text("#adapt-kept") == "1" and page.text("#adapt-diagnosis") == told["diagnosis"]
        tenant = room.tenant(SHARED)
        version = tenant.publish(lambda place: shutil.copytree(zoo.path("eagle3"), place, dirs_exist_ok=True) and None)
        tenant.note("passed", number=2, version=version, before=0, reason="passed after 84 held-out requests")
        page.wait("document.querySelector('#adapt-version').textContent === '1'")
        assert page.text("#adapt-verdict") == "Candidate 2 passed after 84 held-out requests."
        tenant.note("watched", number=1, version=1, before=0)
        tenant.note("kept", number=1, version=1, before=0, reason="failed after 9 held-out requests")
        stays = "This version stays; the one before it failed after 9 held-out requests."
        page.wait(f"document.querySelector('#adapt-verdict').textContent === {stays!r}")
        assert page.problems == []


def test_the_page_shows_nothing_of_a_draft_that_does_not_learn(page: Page) -> None:
    assert "The draft that learns" not in page.text() and page.problems == []


def test_one_key_cannot_take_the_room_of_another(learning: LLM, room: AdaptRoom) -> None:
    with served(learning, api_keys=KEYS) as address, httpx.Client(base_url=address, timeout=60) as client:

        def ask(key: str, salt: str | None) -> None:
            asked = {"prompt": PROMPT, "max_tokens": 4, "ignore_eos": True, "cache_salt": salt}
            reply = client.post("/v1/completions", json=asked, headers={"Authorization": f"Bearer {key}"})
            assert reply.status_code == 200, reply.text

        for salt in (None, "a", "b", "c", "a"):
            ask("first", salt)
        for salt in ("a", None):
            ask("second", salt)
        assert len(learning.adapting.watch.domains) == 4 and learning.adapting.watch.num_left_out == 2
        told = client.get("/v1/adapt", headers={"Authorization": "Bearer first"}).json()
        assert told["requests_left_out"] == 2 and told["rounds"] == 0, "nothing of a tenant's"
    learning.close()
    tenants = [room.tenant(name) for name in room.tenants()]
    assert len(tenants) == 4 and all(spool_files(one.requests) for one in tenants)
