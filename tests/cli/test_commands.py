"""The commands on a tiny random model: what they print, how they end, and that a pipe gets no escape sequences."""

import json
import logging
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from warm import started

from outdraft import zoo
from outdraft.cli.commands.demo import Options, sentence
from outdraft.core.registry import KINDS, find, names
from outdraft.engine.naming import default as default_choice
from outdraft.engine.naming.recipe import recipe_names
from outdraft.engine.naming.roles import read_companions
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model


def test_generate_is_the_same_with_and_without_drafts(outdraft, tiny: Path):
    default_choice._tell.cache_clear()  # it tells once in a process, which may have been in another test
    plain = outdraft("generate", "--model", tiny, "abcabcabc", "--max-tokens", 12)
    drafted = outdraft(
        "generate", "--model", tiny, "--drafter", "ngram", "--color", "--stats", "--max-tokens", 12, stdin="abcabcabc\n"
    )
    assert plain.code == drafted.code == 0
    assert plain.out == drafted.out and "\x1b" not in drafted.out + drafted.err
    assert "12 tokens in " in drafted.err and plain.err.startswith("by default decoding is plain")


def test_what_was_found_beside_the_model_is_said(outdraft, tiny: Path, tmp_path: Path):
    model = tmp_path / "model"
    shutil.copytree(tiny, model)
    save_model(tiny_model("llama", vocab=257, seed=5, dtype=torch.float32), model / "draft")
    ran = outdraft("generate", "ab", "--model", model, "--max-tokens", 4)
    assert ran.code == 0 and f"found draft_model beside the model: {model / 'draft'}" in ran.err
    assert "found" not in ran.out and logging.getLogger("outdraft.notes").handlers == []


def test_generate_under_masks(outdraft, tiny: Path):
    """Letters that may be written, one that may not, and how the answer begins; drafted or not."""
    words = ["generate", "--model", tiny, "abcabcabc", "--max-tokens", 12, "--forced-prefix", "ba", "--bad-words", "c"]
    words += [word for letter in b"abc" for word in ("--allowed-token-ids", letter)]
    texts = {outdraft(*words, "--drafter", drafter, "--typical-p", 0.9).out.strip() for drafter in ("none", "ngram")}
    (text,) = texts
    assert text.startswith("ba") and set(text) == {"a", "b"} and len(text) == 12


def test_generate_json(outdraft, tiny: Path):
    ran = outdraft(
        "generate",
        "--model",
        tiny,
        "--drafter",
        "ngram",
        "-k",
        3,
        "abab",
        "--max-tokens",
        9,
        "--json",
        "--drafter-options",
        "max_ngram=2",
    )
    made = json.loads(ran.out)
    assert ran.err == "" and len(made["token_ids"]) == len(made["sources"]) == 9
    assert made["config"]["drafter"]["max_ngram"] == 2 and made["finish_reason"] == "length"
    assert "speculative_decoding" in made["metrics"]


def test_generate_gives_the_answer_a_form(outdraft, tiny: Path, tmp_path: Path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "words.lark"
    schema.write_text('{"type": "array", "items": {"enum": ["ä", 7]}, "minItems": 2, "maxItems": 2}', encoding="utf-8")
    grammar.write_text('start: "<" ("b" | "bb") ">"')
    for flags, whole in (
        (("--regex", "[ab]{3}!"), r"[ab]{3}!"),
        (("--choice", "yes", "--choice", "no"), "yes|no"),
        (("--json-schema", schema), r'\[\s?("ä"|7)\s?,\s?("ä"|7)\s?\]'),
        (("--grammar", grammar), "<bb?>"),
    ):
        made = json.loads(outdraft("generate", "--model", tiny, "ab", *flags, "--json").out)
        assert re.fullmatch(whole, made["text"]) and made["finish_reason"] == "stop", (flags, made["text"])


@pytest.mark.parametrize(
    "words, says",
    [
        (("generate", "x", "--temperature", "-1"), "temperature=-1.0"),
        (("generate", ""), "prompt is empty"),
        (("generate", "x", "--drafter", "ngarm"), "did you mean 'ngram'"),
        (("generate", "x", "--drafter", "ngram", "--drafter-options", "max_ngrm=2"), "did you mean 'max_ngram'"),
        (("generate", "x", "-k", "-1"), "num_speculative_tokens=-1"),
        (("generate", "x", "--logit-bias", "a=b"), "logit_bias"),
        (("generate", "x", "--regex", "("), "regex of structured_outputs cannot be compiled"),
        (("generate", "x", "--regex", "a", "--choice", "b"), "regex and choice are given"),
        (("generate", "x", "--json-schema", "nowhere.json"), "json schema nowhere.json cannot be read"),
        (("generate", "x", "--grammar", "nowhere.lark"), "grammar nowhere.lark cannot be read"),
        (("generate", "x", "--allowed-token-ids", "99999"), "allowed_token_ids names token 99999"),
        (("generate", "x", "--forced-prefix", "ab", "--bad-words", "ab"), "forced_prefix"),
        (("generate", "x", "--typical-p", "2"), "typical_p=2.0 is out of range"),
        (("generate", "x", "--tempreature", "1"), "did you mean '--temperature'"),
        (("generate", "x", "y"), "unrecognized argument 'y'"),
        (("tune-skip", "--model", "x"), "give MODEL by its position, without a flag"),
        (("quantize", "--model", "x"), "give MODEL by its position, without a flag"),
        (("tune-skip", "x", "--prompt", "y"), "did you mean '--prompts'"),
        (("generate", "x", "--drafter", "ngram", "--drafter-options", "max_ngram=two"), "must be a whole number"),
        (("generate", "x", "--device", "gpu"), "device='gpu' cannot be used here"),
        (("generate", "half \udcff"), "half a character"),
        (("audit",), "nothing to prove"),
        (("audit", "--drafter", "ngram", "--samples", "1"), "at least"),
        (("demo", "--max-tokens", "1"), "max_tokens=1"),
        (("demo", "--seconds", "nan"), "seconds=nan"),
        (("nothing",), "'nothing' is no command; commands: demo, generate"),
        (("genrate", "x"), "'genrate' is no command, did you mean 'generate'?"),
        (("datastore", "biuld"), "'biuld' is no action, did you mean 'build'?; actions: build, info"),
        (("datastore", "info", "--json", "x", "--quieries", "1"), "unrecognized argument '--quieries'"),
        (("methods", "ngarm"), "there is no method 'ngarm', did you mean 'ngram'?"),
        (("methods", "EAGEL"), "did you mean 'eagle'?"),
        (("methods", "coupled", "--kind", "drafter"), "there is no drafter 'coupled'"),
        (("completion", "bsh"), "did you mean 'bash'?"),
    ],
)
def test_errors_are_one_line_and_exit_2(outdraft, tiny: Path, words: tuple[str, ...], says: str):
    model = ("--model", tiny) if words[0] in ("generate", "audit", "demo") else ()
    ran = outdraft(*words, *model)
    assert ran.code == 2 and ran.out == ""
    assert says in ran.err and ran.err.count("\n") == 1 and ran.err.startswith("outdraft")


def test_a_place_that_cannot_be_written_is_one_line(outdraft, tiny: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    for words in (
        ("quantize", tiny, "--out", tmp_path / "file" / "new", "--group-size", 0),
        ("datastore", "build", tmp_path, "--model", tiny, "--text", __file__),
    ):
        ran = outdraft(*words)
        assert ran.code == 2 and ran.err.startswith(f"outdraft {words[0]}") and ran.err.count("\n") == 1
        assert str(tmp_path) in ran.err and "another path" in ran.err


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_input_that_is_no_text(outdraft, tiny: Path, command: str):
    ran = outdraft(command, "--model", tiny, "--drafter", "none", stdin=b"\xff\xfe\n")
    assert ran.code == 2 and "not UTF-8" in ran.err and ran.err.count("\n") == 1


def test_a_model_that_is_not_there(outdraft, tmp_path: Path):
    ran = outdraft("generate", "x", "--model", tmp_path / "no")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "Traceback" not in ran.err


def test_methods(outdraft):
    made = json.loads(outdraft("methods", "--json").out)
    assert [(m["kind"], m["name"]) for m in made] == [(kind, name) for kind in KINDS for name in names(kind)] + [
        ("recipe", name) for name in recipe_names()
    ]
    assert all(set(m) >= {"name", "kind", "lossless", "paper"} for m in made)
    table = outdraft("methods", "--kind", "drafter", "--options").out
    assert "ngram" in table and "max_ngram = 3" in table and "coupled" not in table


def test_methods_stand_by_what_they_need(outdraft, monkeypatch):
    rows = {"eagle": {"GSM8K": {"tau": 2.4, "speedup": 1.4801}, "MT-Bench": {"tau": 2.0, "speedup": 1.2}}}
    one = {name: {"GSM8K": {"tau": 2.0, "speedup": gain}} for name, gain in (("sam", 1.3), ("ngram", 1.1))}
    rows |= one | {"suffix": {"GSM8K": {"tau": 1.5, "speedup": 1.2}}, "draft_model": one["ngram"]}
    rows |= {"llma": one["sam"], "medusa": {"GSM8K": {"tau": 1.0, "speedup": 0.9}}}
    monkeypatch.setattr("outdraft.bench.measured.read_measured", lambda: {"target": "smollm2", "rows": rows})
    monkeypatch.setenv("COLUMNS", "200")
    groups = [group.splitlines() for group in outdraft("methods").out.split("\n\n") if group.strip()]
    listed = {group[0].strip(): [line.split()[0] for line in group[2:]] for group in groups}
    titles = [
        "begin with these",
        "drafters that need nothing",
        "drafters that need a smaller",
        "drafters that need a head",
    ]
    assert all(title.startswith(word) for title, word in zip(listed, titles, strict=False))
    (best, nothing, draft, head, texts, *_) = listed.values()
    assert best == ["auto", "sam", "suffix", "eagle"]  # two that need nothing, one that needs a model or a head
    assert {"ngram", "several", "suffix", "sam"} <= set(nothing)
    assert {"draft_model", "pearl", "merge", "triforce"} <= set(draft) and {"eagle", "medusa"} <= set(head)
    assert texts == ["llma", "rest"]
    (row,) = [line for line in groups[3] if line.startswith("eagle ")]
    assert "1.48x GSM8K" in row and "MT-Bench" not in row and "on smollm2" in groups[3][1]
    assert "measured on smollm2: 1.48x GSM8K, 1.20x MT-Bench" in outdraft("methods", "eagle").out


@pytest.mark.parametrize(
    ("name", "width"), [("ngram", 80), ("draft_model", 120), ("sequoia", 80), ("gated", 120), ("fixed", 80)]
)
def test_a_method_is_listed_with_all_its_options(outdraft, monkeypatch, name: str, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    text = outdraft("methods", name).out
    told = " ".join(text.split())
    entries = json.loads(outdraft("methods", name, "--json").out)
    kinds = [kind for kind in KINDS if name in names(kind)] + ["recipe"] * (name in recipe_names())
    assert [(entry["kind"], entry["name"]) for entry in entries] == [(kind, name) for kind in kinds]
    for entry in entries:
        for option, default in entry["options"].items():
            about = entry["about"][option]
            assert f"{option} = {tuple(default) if isinstance(default, list) else default!r}" in told
            assert f"{about['meaning']} Value: {about['values']}." in told
    assert all(len(line) <= width or "://" in line for line in text.splitlines())
    assert f"docs/methods/{name}.md" in told
    assert ("= '@draft_model' (what you give with --draft-model)" in told) == (name in ("draft_model", "sequoia"))


def test_a_summary_is_no_markup(outdraft, monkeypatch):
    own = replace(find("policy", "fixed"), name="odd", summary="reads [red] files[/]")
    monkeypatch.setattr("outdraft.core.registry.installed", lambda: [SimpleNamespace(name="odd", place="x", found=own)])
    assert "reads [red] files[/]" in outdraft("methods", "--kind", "policy").out


def test_a_method_is_found_by_what_peers_call_it(outdraft):
    assert outdraft("methods", "ngram_gpu").out == outdraft("methods", "ngram").out


def test_chat_keeps_history_and_obeys(outdraft, tiny: Path):
    talk = "hello\n/stats\n/reset\n/nonsense\nagain\n/quit\nnever\n"
    ran = outdraft("chat", "--model", tiny, "--max-tokens", 4, stdin=talk)
    assert ran.code == 0
    assert "no chat template" in ran.out and "(forgotten)" in ran.out and "unknown command /nonsense" in ran.out
    assert "4 tokens in" in ran.out and "\x1b" not in ran.out
    assert outdraft("chat", tiny, stdin="").code == 0
    nowhere = outdraft("chat", tiny / "nowhere", stdin="")
    assert nowhere.code == 2 and "nowhere" in nowhere.err
    twice = outdraft("chat", tiny, "--model", tiny, stdin="")
    assert twice.code == 2 and "both name the model" in twice.err


def test_demo_json(outdraft, tiny: Path):
    ran = outdraft("demo", "--model", tiny, "--max-tokens", 8, "--seconds", 0, "--json")
    made = json.loads(ran.out)
    assert ran.code == 0 and made["plain_tps"] > 0
    scores = {score["name"]: score for score in made["drafters"]}
    assert {"none", "default", "ngram", "lookahead"} <= set(scores)
    assert all(score["identical"] and score["tau"] >= 1 for score in scores.values())
    assert set(scores["ngram"]) >= {"name", "identical", "tau", "speedup", "acceptance_by_position"}
    assert set(scores) | set(made["absent"]) <= {"none", "default", *names("drafter")}


def test_demo_shows_texts_and_a_table(outdraft, tiny: Path):
    ran = outdraft("demo", "--model", tiny, "--max-tokens", 8, "--seconds", 0)
    assert ran.code == 0 and "\x1b" not in ran.out
    assert "class Stack" in ran.out and "identical" in ran.out and "lookahead" in ran.out and "this machine" in ran.out
    assert len(last := ran.out.splitlines()[-1]) > 80 and last.startswith(
        "this machine, "
    )  # what is said is not folded


def test_the_demo_ends_with_what_the_default_gains_here():
    def said(speedup: float) -> str:
        scores = [SimpleNamespace(name="none", speedup=1.0), SimpleNamespace(name="default", speedup=speedup)]
        return sentence(SimpleNamespace(scores=scores), Options(model="m"))

    assert said(1.42) == "this machine, m: the default is 1.4x plain decoding, with the same texts"
    assert "0.98x" in said(0.98) and "larger models gain" in said(0.98) and "larger models" not in said(1.06)


def test_demo_shows_the_family_of_a_model(outdraft):
    ran = outdraft("demo", "--all", "--no-live", "--max-tokens", 8, "--seconds", 0)
    assert ran.code == 0
    drawn = {line.split()[0]: line for line in ran.out.splitlines() if "|" in line and " yes " in line}
    target = zoo.path("target")
    assert {"none", "ngram"} | set(read_companions(target)["head"]) <= set(drawn)
    speeds = [float(re.search(r"([\d.]+)x", line)[1]) for line in drawn.values()]
    assert speeds == sorted(speeds, reverse=True)
    assert re.search(r"[█#]+\|$", drawn["none"].rstrip()), "plain decoding's bar ends at the stroke"


def test_reader_of_a_pipe_may_leave():
    with started("outdraft.cli.main", "methods", "--json") as ran:
        ran.out.close()
        assert ran.err.read() == b"" and ran.end() >= 0


@pytest.mark.parametrize(("said", "coloured"), [("", True), ("1", False)])
def test_no_color_on_a_terminal(monkeypatch: pytest.MonkeyPatch, said: str, coloured: bool):
    """A pseudo-terminal gets colours, and none with NO_COLOR."""
    pty = pytest.importorskip("pty")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    main, other = pty.openpty()
    more = {"NO_COLOR": said} if said else {}
    with started("outdraft.cli.main", "methods", "--kind", "verifier", to_out=other, TERM="xterm-256color", **more):
        os.close(other)
        shown = b""
        try:
            while piece := os.read(main, 65536):
                shown += piece
        except OSError:
            pass  # Linux says so when the other end is closed
        os.close(main)
    assert (b"\x1b[" in shown) == coloured and b"coupled" in shown


def test_ctrl_c_is_130_without_a_traceback():
    """With its first words out, the zoo's target has a second or more to go."""
    words = ("generate", "--model", "zoo:target", "ab", "--ignore-eos", "--max-tokens", 1000)
    with started("outdraft.cli.main", *words) as ran:
        ran.out.read(1)
        ran.send(signal.SIGINT)
        assert b"Traceback" not in ran.err.read() and ran.end() == 130
