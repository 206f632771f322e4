"""A draft that keeps learning, soaked in miniature; and a wrong text and a version that is cut off are noticed."""

import json

import pytest
from safetensors.torch import save_file

from lab.adapt_soak import kills, swaps
from lab.adapt_soak.kills import broken
from outdraft.adapt.room import SHARED, AdaptRoom, Pair


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    made = swaps.requests
    for module in (swaps, kills):
        monkeypatch.setattr(module, "requests", lambda rng, count, longest: made(rng, 24, 12))


def test_texts_are_the_same_through_swaps(tmp_path):
    record = swaps.swaps(tmp_path, 5)
    assert record["wrong"] == 0 and record["while requests ran"] >= 5 and record["texts"] >= 24
    assert record["most versions in a batch"] > 1


def test_a_wrong_text_is_noticed(tmp_path, monkeypatch):
    honest = swaps.plain_texts
    monkeypatch.setattr(swaps, "plain_texts", lambda asked: [(*one[:-1], one[-1] ^ 1) for one in honest(asked)])
    assert swaps.swaps(tmp_path, 1)["wrong"] > 0


def test_an_engine_goes_on_where_a_publisher_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "KILLED", ("publishing",))
    record = kills.kills(tmp_path, 1)
    assert record["publishing"] == 1 and record["wrong"] == 0 and record["texts"] == 24


@pytest.mark.parametrize("what", ["whole", "cut off", "gone", "went back"])
def test_a_version_that_is_not_whole_is_noticed(tmp_path, what):
    places = {name: tmp_path / name for name in ("target", "draft")}
    for one in places.values():
        one.mkdir()
        (one / "model.safetensors").write_bytes(b"weights")
    tenant = AdaptRoom.open(tmp_path / "room", Pair(**places), {}).tenant(SHARED)
    for _ in range(2):
        tenant.publish(lambda place: (save_file({}, place / "model.safetensors"), _config(place)))
    if what == "cut off":
        (tenant.place(1) / "model.safetensors").write_bytes(b"12")
    if what == "gone":
        (tenant.path / "current").write_text("7\n")
    assert broken(tenant, 3 if what == "went back" else 2) == (what != "whole")


def _config(place):
    (place / "config.json").write_text(json.dumps({}))
