"""The small parts of a bench: method spelling, order of a round, identity, memory, journal, fingerprints."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from outdraft import LLM
from outdraft.bench.drafts import Maker
from outdraft.bench.entrant import Ours
from outdraft.bench.fingerprint import digest
from outdraft.bench.identity import find_difference
from outdraft.bench.lineup import RIVALS, Rival, lineup_of, parse_rival
from outdraft.bench.machine import describe
from outdraft.bench.memory import forget_peak, read_peak
from outdraft.bench.shelf import Shelf
from outdraft.bench.subject import fingerprints
from outdraft.bench.trial import order
from outdraft.bench.write import RecordFile
from outdraft.options.errors import ConfigError
from outdraft.weights.digest import digest_weights


def test_method_spelling():
    rival = parse_rival("eagle:k=8,width=3,taps=[2,5],verifier=block")
    assert (rival.name, rival.num_speculative_tokens, rival.verifier) == ("eagle", 8, "block")
    assert rival.options == {"width": 3, "taps": [2, 5]}
    assert rival.label == "eagle k=8 width=3 taps=[2, 5] verifier=block"
    assert parse_rival("ngram", verifier="greedy").label == "ngram verifier=greedy"
    nested = parse_rival('several:policy=auto,drafters=["ngram",{"method":"draft_model","options":[1,{}]}],k=3')
    assert nested.options == {"drafters": ["ngram", {"method": "draft_model", "options": [1, {}]}]}
    assert nested.policy == "auto" and nested.num_speculative_tokens == 3
    paced = parse_rival("eagle:policy=threshold,policy.threshold=0.6,width=3")
    assert (paced.policy, dict(paced.policy_options), dict(paced.options)) == (
        "threshold",
        {"threshold": 0.6},
        {"width": 3},
    )
    assert paced.label == "eagle width=3 policy=threshold policy.threshold=0.6"
    fixed = parse_rival("none:threads=1")
    assert (fixed.label, fixed.threads, dict(fixed.options)) == ("none threads=1", 1, {})
    assert [rival.label for rival in RIVALS][:3] == ["default", "draft_model k=4", "ngram k=8"]
    for text, says in (
        ("ngram:k", "no key=value"),
        ("ngram:k=x", "k=x is no whole"),
        ("none:threads=x", "threads=x is no whole"),
        ("ngram:=3", "no key=value"),
    ):
        with pytest.raises(ConfigError, match=says):
            parse_rival(text)


def test_files_are_known_by_what_they_hold(tmp_path: Path):
    """A nested head and a datastore, by the options that name them."""
    (head := tmp_path / "head").mkdir()
    files = [head / "model.safetensors", tmp_path / "texts.store"]
    options = [
        {"name": "several", "drafters": ["ngram", {"method": "eagle", "model": str(head)}], "k": 3},
        {"name": "rest", "datastore": str(files[1]), "quantization": "auto"},
    ]
    seen = [fingerprints(options)]
    for file in files:
        file.write_bytes(b"x")
        seen.append(fingerprints(options))
    assert all(one != later for one, later in pairwise(seen)), seen
    assert fingerprints([{"name": "ngram", "max_ngram": 3}, {"name": "fixed"}]) == {}
    llm = LLM(
        "zoo:target", drafter={"name": "several", "drafters": ["ngram", {"method": "eagle", "model": "zoo:eagle"}]}
    )
    assert list(Ours(llm).config["files"]) == ["zoo:eagle"]


def test_everybody_is_first_and_last_in_turn():
    labels = ["a", "b", "c"]
    orders = ["".join(order(labels, number)) for number in range(6)]
    assert all(sorted(one) == labels for one in orders)
    assert orders[:3] == ["abc", "bac", "cab"] and {one[-1] for one in orders} == set(labels)
    assert [order(labels[:2], number) for number in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]


def test_difference_names_the_place():
    assert find_difference([1, 2], [1, 2]) is None
    assert find_difference([1, 3], [1, 2]) == "token 1 is 3, plain decoding's is 2"
    assert "has 1 tokens" in str(find_difference([1], [1, 2]))


def test_memory_and_machine_are_given():
    forget_peak("cpu")
    assert read_peak("cpu")["host"] > 1 << 20
    told = describe("cpu")
    assert told["cores"] >= 1 and told["cpu"] and "gpu" not in told


def test_journal_goes_on_after_a_cut_line(tmp_path: Path):
    path = tmp_path / "below" / "a.jsonl"
    with RecordFile(path) as journal:
        journal.append({"key": "one"})
    path.write_text(path.read_text() + '{"key": "tw')
    with RecordFile(path) as journal:
        assert journal.keys == {"one"} and journal.num_found == 1
        journal.append({"key": "two"})
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["one", "two"]
    with RecordFile(path) as journal:
        journal.append({"key": "prompt\u2028three"})
    with RecordFile(path) as journal:
        assert journal.keys == {"one", "two", "prompt\u2028three"}
    path.write_text("not ours\n")
    with pytest.raises(ConfigError, match="line 1 is no record"):
        RecordFile(path)
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordFile(path / "under-a-file.jsonl")


def test_fingerprints(tmp_path: Path):
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1})
    (tmp_path / "model.safetensors").write_bytes(bytes(200_000))
    before = digest_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(bytes(199_999) + b"x")
    assert digest_weights(tmp_path) != before


def test_a_drafter_of_another_package():
    plain = parse_rival("contracts.stutter:METHOD")
    assert (plain.name, plain.options, plain.label) == ("contracts.stutter:METHOD", {}, "contracts.stutter:METHOD")
    rival = parse_rival("contracts.stutter:METHOD:k=3,period=4,verifier=outdraft.testing.planted:METHOD")
    assert (rival.name, rival.options, rival.num_speculative_tokens) == ("contracts.stutter:METHOD", {"period": 4}, 3)
    assert rival.verifier == "outdraft.testing.planted:METHOD"
    with pytest.raises(ConfigError, match="is no key=value"):
        parse_rival("ngram:METHOD")


def test_the_line_up_of_a_model_is_what_needs_nothing_and_what_lies_beside(tmp_path: Path):
    assert lineup_of("zoo:target@2x2") == list(RIVALS)
    (tmp_path / "config.json").write_text("{}")
    assert [rival.name for rival in lineup_of(str(tmp_path))] == ["default", "ngram", "lookahead"]
    (tmp_path / "companions.json").write_text('{"draft_model": "./small", "head": {"eagle3": "./head"}}')
    assert [rival.name for rival in lineup_of(str(tmp_path))] == [
        "default",
        "draft_model",
        "ngram",
        "lookahead",
        "eagle3",
    ]


def test_the_default_is_what_an_engine_drafts_with_by_itself():
    assert Rival(name="default").words["drafter"] is None and Rival(name="ngram").words["drafter"] is not None


def test_the_default_over_an_inflated_target_is_given_what_was_made(tmp_path: Path):
    rival = Rival(name="default")
    assert Maker(shelf=Shelf(str(tmp_path)), target="zoo:target").make(rival) == rival
    made = Maker(shelf=Shelf(str(tmp_path)), target="zoo:target@int8").make(rival)
    assert made.is_recipe and made.name == "auto" and "draft_model" in made.roles
