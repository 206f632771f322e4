"""Values of a body are counted before they are read, outside of texts, in pieces."""

import json
import random
from threading import current_thread

import pytest

from outdraft.server import strict_json
from outdraft.server.errors import ApiError
from outdraft.server.strict_json import MOST_TABLES, MOST_VALUES, StrictRequest, check_values, seems_large


def test_too_many_are_refused_before_they_are_read(client):
    for body, told in (
        (b'{"prompt": [' + b"1," * MOST_VALUES + b"1]}", "131,072 values"),
        (b'{"metadata": {' + b",".join(b'"%d": 1' % i for i in range(MOST_TABLES + 1)) + b"}}", "members of tables"),
        (b'{"prompt": [' + b"[1]," * MOST_TABLES + b"[1]]}", "lists"),
        (b'{"no such field": [' + b"[1]," * MOST_TABLES + b"[", "lists"),  # no JSON at all, behind that
    ):
        reply = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400 and told in reply.json()["error"]["message"]
        assert reply.json()["error"]["code"] == "too_many_values"


def test_texts_hold_what_signs_they_will(client):
    text = ", : [ " * MOST_TABLES
    reply = client.post("/tokenize", json={"prompt": text[:1000], "return_token_strs": False})
    assert reply.status_code == 200
    assert "too_many_values" not in client.post("/v1/completions", json={"prompt": text, "max_tokens": 1}).text
    body = json.dumps({"prompt": text}).encode()
    assert seems_large(body)
    check_values(body)


def test_long_bodies_are_checked_beside_the_event_loop(client, monkeypatch):
    """And what is wrong with one is said in the same words."""
    threads, read = [], StrictRequest._read
    monkeypatch.setattr(
        StrictRequest, "_read", lambda self, body: threads.append(current_thread().name) or read(self, body)
    )
    said = []
    for filling in ("", "x" * 20_000):
        body = {"prompt": "a", "max_tokens": 1, "n": 0, "negative_prompt": filling}
        said.append(client.post("/v1/completions", json=body).json()["error"])
    assert said[0] == said[1] and said[0]["param"] == "n"
    assert len({*threads}) == 2 and not threads[0].startswith("outdraft-texts")
    assert threads[1].startswith(("outdraft-texts", "asyncio_"))


@pytest.mark.parametrize("seed", range(30))
def test_what_is_counted_is_what_a_reader_would_make(monkeypatch, seed):
    """Pieces of a few bytes, so that texts, escapes and signs lie across their ends."""
    dice = random.Random(seed)
    made = value(dice, 5)
    body = json.dumps(made).encode()
    monkeypatch.setattr(strict_json, "_PIECE", dice.randint(1, 9))
    values, members, lists = counts(made)
    monkeypatch.setattr(strict_json, "MOST_TABLES", max(members, lists))
    check_values(body, values)
    if values > 1:
        with pytest.raises(ApiError, match="values"):
            check_values(body, values - 1)
    if members >= lists and members:
        monkeypatch.setattr(strict_json, "MOST_TABLES", members - 1)
        with pytest.raises(ApiError, match=r"members|lists"):
            check_values(body, values)


def value(dice, depth):
    kind = dice.randrange(4 if depth else 2)
    if kind == 0:
        return dice.randint(-9, 9)
    if kind == 1:
        return "".join(dice.choice('ab,:[]{}"\\\\\n\u00e9') for _ in range(dice.randrange(9)))
    if kind == 2:
        return [value(dice, depth - 1) for _ in range(dice.randint(1, 5))]
    return {f'k{i}"': value(dice, depth - 1) for i in range(dice.randint(1, 5))}


def counts(made):
    """Values, one for each list or table that is not empty; members; lists."""
    inner = list(made.values()) if isinstance(made, dict) else made if isinstance(made, list) else []
    found = [counts(one) for one in inner]
    return (
        max(1, sum(one[0] for one in found)),
        len(inner) * isinstance(made, dict) + sum(one[1] for one in found),
        isinstance(made, list) + sum(one[2] for one in found),
    )
