"""Recipes and references at the command line."""

import json
from pathlib import Path

import pytest

from outdraft import zoo
from outdraft.bench.drafts import make_draft
from outdraft.bench.lineup import fill_roles, parse_rival
from outdraft.bench.shelf import Shelf
from outdraft.engine.naming.recipe import recipe_names
from outdraft.options.errors import ConfigError


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text('[drafter]\nname = "ngram"\n[drafter.options]\nmax_ngram = 2\n')
    return path


def test_methods_lists_recipes(outdraft):
    made = json.loads(outdraft("methods", "--kind", "recipe", "--json").out)
    assert [entry["name"] for entry in made] == recipe_names()
    ngram = next(entry for entry in made if entry["name"] == "ngram")
    assert ngram["lossless"] and ngram["shape"] == "chain" and ngram["paper"]["year"] == 2023
    assert ngram["summary"] == "ngram x chain x auto x fixed"
    assert {entry["kind"] for entry in json.loads(outdraft("methods", "--json").out)} == {
        "drafter",
        "verifier",
        "policy",
        "recipe",
    }
    table = outdraft("methods", "--kind", "recipe", "--options").out
    assert "lookahead" in table and "drafter.window" in table


def test_generate_with_a_recipe(outdraft, tiny: Path, mine: Path):
    plain = outdraft("generate", "--model", tiny, "abcabcabc", "--max-tokens", 12)
    words = ("generate", "--model", tiny, "abcabcabc", "--max-tokens", 12, "--drafter", mine)
    assert outdraft(*words).out == plain.out
    made = json.loads(outdraft(*words, "--json", "-k", 3).out)
    assert made["config"]["recipe"]["name"] == "mine" and made["config"]["drafter"]["max_ngram"] == 2
    assert made["config"]["policy"]["num_speculative_tokens"] == 3
    ran = outdraft("generate", "--model", tiny, "abc", "--recipe", mine)
    assert ran.code == 2 and "here it is called --drafter" in ran.err and ran.err.count("\n") == 1


def test_references_reach_the_drafter(outdraft, tiny: Path, tmp_path: Path, monkeypatch):
    from outdraft.engine.loop import Engine

    seen = []
    prepare = Engine.prepare

    def note(self, request, *rest, **more):
        seen.append(request)
        return prepare(self, request, *rest, **more)

    monkeypatch.setattr(Engine, "prepare", note)
    file = tmp_path / "document.txt"
    file.write_text("the document")
    words = ("--model", tiny, "--max-tokens", 3, "--reference", file, "--reference", file)
    assert outdraft("generate", "abc", *words).code == 0
    assert outdraft("chat", *words, stdin="abc\n").code == 0
    assert [len(request.references) for request in seen] == [2, 2]
    assert all(bytes(b for b in text if b < 256) for request in seen for text in request.references)
    ran = outdraft("generate", "abc", "--model", tiny, "--reference", tmp_path / "none.txt")
    assert ran.code == 2 and "none.txt cannot be read" in ran.err


def test_audit_a_recipe(outdraft, tiny: Path, mine: Path):
    words = ("audit", "--model", tiny, "--drafter", mine, "--prompts", 1, "--tokens", 2, "--samples", 20, "--json")
    made = json.loads(outdraft(*words).out)
    assert any(str(mine) in check["name"] for check in made["checks"])


def test_bench_a_recipe(outdraft, tiny: Path, mine: Path, tmp_path: Path):
    out = tmp_path / "records.jsonl"
    suite = tmp_path / "suite.jsonl"
    suite.write_text(json.dumps({"prompt": "abcabcabc", "references": ["abcabcabcabc"]}) + "\n")
    words = ("bench", "--model", tiny, "--suite", suite, "--rounds", 1, "--max-tokens", 6, "--no-curve", "--no-plots")
    assert outdraft(*words, "--out", out, "--recipe", mine, "--method", "recipe:ngram,k=3").code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["method"] for row in rows} == {"none", f"recipe:{mine}", "recipe:ngram k=3"}
    assert all(row["identical"] for row in rows)
    config = next(row["config"] for row in rows if row["method"] == "recipe:ngram k=3")
    assert config["recipe"]["name"] == "ngram" and config["policy"]["num_speculative_tokens"] == 3


def test_a_rival_that_is_a_recipe():
    rival = parse_rival("recipe:lookahead,k=3,window=5,verifier=greedy")
    assert (
        rival.is_recipe
        and rival.drafter == "lookahead"
        and rival.label == "recipe:lookahead k=3 window=5 verifier=greedy"
    )
    assert rival.words["drafter"] == {"name": "recipe:lookahead", "window": 5}
    with pytest.raises(ConfigError, match="names no recipe"):
        parse_rival("recipe")


def test_roles_are_flags_of_every_command_that_takes_a_recipe(outdraft, tiny: Path, tmp_path: Path):
    words = ("--model", tiny, "--drafter", "recipe:draft_model")
    made = json.loads(outdraft("generate", "abc", *words, "--draft-model", tiny, "--max-tokens", 4, "--json").out)
    assert made["config"]["recipe"]["roles"] == {"draft_model": str(tiny)}
    for command in (("generate", "abc"), ("chat",), ("audit",), ("bench", "--suite", "prose", "--out", tmp_path / "r")):
        named = ("--recipe", "draft_model") if command[0] == "bench" else words[2:]
        ran = outdraft(*command, *words[:2], *named, stdin="abc\n")
        assert ran.code == 2 and "leaves the role 'draft_model' to you" in ran.err and "--draft-model" in ran.err
        ran = outdraft(*command, *words[:2], *named, "--draft-model", tiny, "--head", tiny, stdin="abc\n")
        assert ran.code == 2 and "fills a role that" in ran.err, command
    alone = json.loads(outdraft("generate", "abc", "--model", tiny, "--draft-model", tiny, "--json").out)
    assert alone["config"]["drafter"]["name"] == "draft_model"
    ran = outdraft("audit", "--model", tiny, "--all", "--head", tiny)
    assert ran.code == 2 and "leave out --head" in ran.err


def test_a_rivals_roles_are_its_own_or_those_of_all(outdraft, tiny: Path, tmp_path: Path):
    rivals = [parse_rival("recipe:eagle"), parse_rival("recipe:eagle,head=mine,k=2"), parse_rival("ngram")]
    filled = fill_roles(rivals, {"head": "all"})
    assert [rival.words.get("head") for rival in filled] == ["all", "mine", None]
    assert filled[1].label == "recipe:eagle k=2 head=mine"
    with pytest.raises(ConfigError, match="datastore='x' fills a role that no recipe here has"):
        fill_roles(rivals, {"datastore": "x"})


def test_an_inflated_target_has_the_companions_of_the_one_that_it_was_made_from(tmp_path: Path):
    shelf = Shelf(tmp_path)
    made = make_draft(parse_rival("recipe:eagle"), shelf, "zoo:target@2x10")
    assert Path(made.roles["head"]).name.startswith("eagle-2x10")
    assert make_draft(parse_rival("recipe:draft_model"), shelf, "zoo:target@2x10").roles == {
        "draft_model": str((zoo.path("target") / "../draft").resolve())
    }
    assert make_draft(parse_rival("recipe:eagle"), shelf, "zoo:target").roles == {}, "the engine asks the model itself"
    for name in ("eagle", "eagle3"):  # the latter has no default of its own
        named = make_draft(parse_rival(name), shelf, "zoo:target@2x10")
        assert Path(named.options["model"]).name.startswith(f"{name}-2x10")
    assert make_draft(parse_rival("eagle3"), shelf, "zoo:target").options == {}
    assert make_draft(parse_rival("draft_model"), shelf, "zoo:target@2x10").options == {}, "the zoo's is the default"
