"""Every field of every request has a way to grow, at least thirty pairs are named, and none of it is out of date."""

import json

import pytest

pytest.importorskip("fastapi")
from lab.abuse.fields import Field, fields
from lab.abuse.pairs import PAIRS
from lab.abuse.places import PLACES
from lab.abuse.subjects import subjects
from lab.abuse.ways import WAYS, settings_of, used, ways_of
from outdraft import LLM
from outdraft.server.app import make_app
from outdraft.server.service import Service
from outdraft.server.settings import ServerSettings


@pytest.fixture(scope="module")
def openapi():
    with LLM("zoo:target", drafter="none") as llm:
        service = Service(llm, ServerSettings(served_model_name=("target",)))
        yield make_app(service).openapi()
        service.stop_listening()


def test_every_field_has_a_place_and_a_way_to_grow(openapi):
    found = fields(openapi)
    assert len(found) > 300 and {"/kv_events?since", "ChatRequest.messages"} <= {one.id for one in found}
    missing = [one.id for one in found if one.values is None and not has_way(one)]
    assert not missing, f"say in lab/abuse/ways.py how these grow: {missing}"
    assert {one.table for one in found if not one.table.endswith("?")} == {*PLACES}


def has_way(field: Field) -> bool:
    try:
        return bool(ways_of(field))
    except KeyError:
        return False


def test_a_field_that_is_new_is_noticed(openapi):
    changed = json.loads(json.dumps(openapi))
    changed["components"]["schemas"]["Message"]["properties"]["mood"] = {"type": "string"}
    assert [one.id for one in fields(changed) if one.values is None and not has_way(one)] == ["Message.mood"]


def test_no_line_is_without_a_field(openapi):
    assert {*WAYS} == {*used(fields(openapi))}


def test_what_grows_grows(openapi):
    for field in fields(openapi):
        for way in ways_of(field) if field.values is None else ():
            first, *_, last = way.sizes()[:7]
            small, large = (json.dumps(settings_of(field, way, size)) for size in (first, last))
            assert small != large, (field.id, way.how)


def test_the_pairs_are_named_and_grow():
    assert len(PAIRS) >= 30 and len({one.name for one in PAIRS}) == len(PAIRS)
    for one in PAIRS:
        assert json.dumps(one.body(1)) != json.dumps(one.body(16)), one.name


def test_a_field_that_several_tables_share_is_measured_once(openapi):
    found = list(subjects(openapi))
    shared = {one.name: one.same_as for one in found if one.same_as}
    assert shared["ChatRequest.temperature"] == "CompletionRequest.temperature"
    assert "ChatRequest.messages" not in shared and len({(one.name, one.how) for one in found}) == len(found)
