"""Honest clients and the abuser in short, and what the verdict of a storm notices."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("fastapi")
from serving import serving

from lab.abuse.abuser import Abuser
from lab.abuse.bodies import BODIES
from lab.abuse.honest import Honest
from lab.abuse.storm import _FIRST, main
from lab.abuse.target import Target
from lab.abuse.verdict import verdict
from lab.soak_http.asked import Written, kinds, right
from lab.soak_http.model import write_model
from outdraft import LLM

KINDS = [one for one in kinds(Random(3), 16) if one.params is not None][:6]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(str(write_model("zoo:target", tmp_path_factory.mktemp("storm") / "model")), drafter="ngram") as made:
        yield made


def honest(llm: LLM, rights: list[Written | None], seconds: float):
    with serving(llm, tool_call_parser="hermes") as (address, _):
        told = [Target(kind="plain", address=address)]
        clients = Honest(told, KINDS, [one for one in rights if one], count=3, thinks=0.05, seed=1)
        return asyncio.run(clients.window(seconds))


def test_honest_clients_get_their_texts(llm: LLM):
    served = honest(llm, [right(llm, kind) for kind in KINDS], 0.7)
    assert served.seconds and served.wrong == [] and served.lost == []
    assert len(served.firsts) == len(served.seconds) == served.to_json()["texts"]


def test_a_wrong_text_is_noticed(llm: LLM):
    rights = [Written(texts=("no such text",) * kind.count, calls=((),) * kind.count) for kind in KINDS]
    assert honest(llm, [*rights], 0.3).wrong


def test_the_abuser_sends_as_many_harmless_requests(llm: LLM):
    with serving(llm, tool_call_parser="hermes") as (address, _):
        abuser = Abuser([Target(kind="plain", address=address)], seed=2, share=0.25)
        told = asyncio.run(abuser.window("harmless", 0.9, 0, 4))
    assert told["count"] == 4 and told["ends"] == {"harmless: 200": 4}


def test_attacks_are_drawn_by_the_seed():
    for sort, made in BODIES.items():
        drawn = [json.dumps(made(Random(f"1 {i}")).body)[:4000] for i in range(4)]
        assert drawn == [json.dumps(made(Random(f"1 {i}")).body)[:4000] for i in range(4)]
        assert len(set(drawn)) > 1, sort


def window(mode: str, firsts: list[float], **more: object) -> dict[str, object]:
    honest = {"texts": 9, "wrong": 0, "lost": 0, "firsts": firsts, **more}
    return {
        "mode": mode,
        "seconds": 60,
        "honest": honest,
        "dead": [],
        "abuser": {"count": 5, "share": 0.2, "ends": {"regex: 400": 5}},
    }


def held(mode: str, mib: int = 300, descriptors: int = 9, ready: bool = True) -> dict[str, object]:
    servers = {"tls": {"mib": mib, "descriptors": descriptors, "threads": 4}}
    return {"mode": mode, "servers": servers, "logs": {"tls": 0}, "ready": {"tls": ready}}


QUIET = (window("abuse", [0.2]), window("harmless", [0.2]))


def test_a_storm_that_holds():
    told = verdict([held("begin"), window("abuse", [0.3] * 9), window("harmless", [0.2] * 9), held("end")])
    assert told["faults"] == [] and told["ratio"] == 1.5


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([window("abuse", [0.5] * 9), window("harmless", [0.2] * 9)], "2.5 times as long"),
        ([window("abuse", [0.2], wrong=1), window("harmless", [0.2])], "1 honest texts wrong"),
        ([window("harmless", [0.2], lost=2), window("abuse", [0.2])], "2 honest texts lost"),
        ([{**window("abuse", [0.2]), "dead": ["tls"]}, window("harmless", [0.2])], "the server tls has ended"),
        ([*QUIET, held("begin"), held("end", 501)], "201 mib more"),
        ([*QUIET, held("begin"), held("end", 300, 12)], "3 descriptors more"),
        ([*QUIET, held("begin"), held("end", ready=False)], "ready"),
    ],
)
def test_what_did_not_hold_is_reported(rows, says):
    told = verdict(rows)["faults"]
    assert len(told) == 1 and says in told[0]


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Three servers for seconds: no text wrong, none lost; how long things take, and what grows, is not judged."""
    monkeypatch.setattr("lab.abuse.storm._FIRST", _FIRST[:-2])  # caches need not be full
    monkeypatch.setattr("lab.abuse.storm._WARM", 1.0)
    monkeypatch.setattr("lab.abuse.storm._IDLE", 1.0)
    record = tmp_path / "storm.jsonl"
    main(["--minutes", "0.2", "--window", "6", "--clients", "4", "--record", str(record)])
    rows = [json.loads(line) for line in record.read_text().splitlines()[1:]]
    windows = [row for row in rows if "honest" in row]
    assert len(windows) == 4 and all(row["honest"]["wrong"] == row["honest"]["lost"] == 0 for row in windows)
