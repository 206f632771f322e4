"""`return_draft_tree`: the draft of the last round, and what became of each node."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch
from serving import serving

from outdraft import LLM, SamplingParams
from outdraft.core.draft import Draft, Role, chain, host_tree
from outdraft.core.draft_tree import Status, tell_tree
from outdraft.core.verdict import Verdict

PROMPT = "It was late when"
ASKED: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "return_draft_tree": True}
TREE = Draft(
    tokens=torch.tensor([9, 1, 2, 3, 4, 5, 6]),
    parents=torch.tensor([-1, 0, 0, 0, 2, 2, 1]),
    roles=torch.tensor([Role.VERIFY] * 5 + [Role.PROBE, Role.VERIFY]),
)


@pytest.mark.parametrize(
    ("path", "bonus", "wanted"),
    [
        ((2, 4), True, "pending rejected accepted unreached accepted probe unreached"),
        ((2,), False, "pending rejected accepted unreached rejected probe unreached"),
        ((), False, "pending rejected rejected rejected unreached probe unreached"),
        ((1, 6), True, "pending accepted unreached unreached unreached probe accepted"),
    ],
)
def test_what_became_of_each_node(path: tuple[int, ...], bonus: bool, wanted: str) -> None:
    told = tell_tree(TREE, host_tree(TREE), Verdict(path, 8, bonus))
    assert [str(one) for one in told.statuses] == wanted.split()
    assert (told.token, told.is_bonus, told.tokens[4], told.parents[4]) == (8, bonus, 4, 2)


def test_plain_decoding_has_its_pending_token_alone() -> None:
    told = tell_tree(chain([3]), host_tree(chain([3])), Verdict((), 5, True))
    assert (told.tokens, told.statuses) == ((3,), (Status.PENDING,))


@pytest.fixture(scope="module")
def trees() -> Iterator[LLM]:
    """A drafter that makes trees, and tells its confidence."""
    options = {"model": "zoo:draft", "width": 2}
    with LLM("zoo:target", drafter={"name": "draft_model", **options}, policy="threshold") as made:
        yield made


def pieces(client: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = client.post(path, json={**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [choice for line in lines if line != "[DONE]" for choice in json.loads(line)["choices"]]


def accepted(tree: dict[str, Any]) -> list[int]:
    """Tokens that were kept, and the one that ended the round."""
    return [node["token_id"] for node in tree["nodes"] if node["status"] == "accepted"] + [tree["token_id"]]


def test_trees_join_to_the_text(trees: LLM) -> None:
    with serving(trees) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
        made = pieces(client, "/v1/completions", {**ASKED, "return_token_ids": True})
        plain = client.post("/v1/completions", json={**ASKED, "return_draft_tree": False}).json()["choices"][0]
        whole = client.post("/v1/completions", json=ASKED).json()["choices"][0]
        chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "return_draft_tree": True}
        said = pieces(client, "/v1/chat/completions", chat)
        ids = {"token_ids": list(trees.encode(PROMPT)), "return_draft_tree": True}
        bare = client.post("/inference/v1/generate", json=ids).json()["choices"][0]["draft_tree"]
    for one in made[:-1]:  # the last may be cut at the limit
        assert accepted(one["draft_tree"]) == one["token_ids"]
        assert one["token_sources"][-1] == one["draft_tree"]["source"]
    assert made[0]["draft_tree"]["drafted_by"] is None and len(made[0]["draft_tree"]["nodes"]) == 1
    drafted = [one["draft_tree"] for one in made[1:]]
    assert {tree["drafted_by"] for tree in drafted[:-1]} == {"draft_model"}
    parents = [node["parent"] for tree in drafted for node in tree["nodes"]]
    assert (
        None in parents
        and len(parents) > len({*parents})
        and any(len({node["parent"] for node in tree["nodes"]}) < len(tree["nodes"]) for tree in drafted)
    ), "some node has two children"
    assert all(0 <= node["confidence"] <= 1 for tree in drafted for node in tree["nodes"][1:])
    assert [node["text"] for node in drafted[0]["nodes"][:1]] == [trees.get_tokenizer().decode(made[0]["token_ids"])]
    assert whole["text"] == plain["text"] and "draft_tree" not in plain
    assert whole["draft_tree"] == made[-1]["draft_tree"]
    assert all("draft_tree" in one for one in said[1:]) and said[-1]["draft_tree"]["nodes"]
    assert "text" not in bare and "text" not in bare["nodes"][0]


def test_nothing_is_made_for_who_does_not_ask(monkeypatch: pytest.MonkeyPatch, llm: LLM) -> None:
    few = SamplingParams(max_tokens=4)
    assert llm.generate(PROMPT, few, return_draft_tree=True).draft_tree is not None
    assert all(chunk.draft_tree is not None for chunk in llm.stream(PROMPT, few, return_draft_tree=True))
    monkeypatch.setattr("outdraft.decode.commit.tell_tree", None)  # raises if it is called
    assert llm.generate(PROMPT, few).draft_tree is None
