"""Flags come from dataclass fields: names, types, defaults, help; nothing is written twice."""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from lab import cli_page
from outdraft.cli.command import all_commands
from outdraft.cli.flags import EngineFlags, SamplingFlags
from outdraft.cli.main import main
from outdraft.cli.options import add_flags, argument, build, default_of, flag, flag_name
from outdraft.options.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Nested."""

    rate: float = flag(0.5, "a rate, 50% by default")
    names: tuple[str, ...] = flag((), "some names")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One of everything."""

    word: str | None = argument(None, "a word")
    inner: Inner = field(metadata={"title": "inner"})
    count: int | None = flag(None, "how many", short="-n")
    careful: bool = flag(True, "with care")
    loud: bool = flag(False, "with noise")
    shape: str = flag("chain", "which", choices=("chain", "tree"))
    given: Mapping[str, Any] = flag({}, "pairs")


def parse(*words: str) -> Outer:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, Outer)
    return build(Outer, parser.parse_args(words))


def test_defaults():
    assert parse() == Outer(inner=Inner())


def test_values():
    made = parse("hi", "-n", "3", "--no-careful", "--loud", "--rate", "0.25", "--names", "a", "--names", "b")
    assert made == Outer(word="hi", count=3, careful=False, loud=True, inner=Inner(rate=0.25, names=("a", "b")))


def test_pairs_are_json_where_they_can_be():
    made = parse("--given", "a=1", "--given", "b=x y", "--given", "max-ngram=[2, 3]", "--given", '{"c": null}')
    assert made.given == {"a": 1, "b": "x y", "max_ngram": [2, 3], "c": None}
    made = parse("--given", "taps=1,2, 3", "--given", "shares=0.5,-1", "--given", "text=1,a", "--given", "end=1,")
    assert made.given == {"taps": [1, 2, 3], "shares": [0.5, -1], "text": "1,a", "end": "1,"}


@pytest.mark.parametrize("words", [("--given", "nothing"), ("--given", "{"), ("--shape", "x"), ("--lou",), ("-n", "x")])
def test_wrong_words_are_refused(words: tuple[str, ...]):
    with pytest.raises(SystemExit):
        parse(*words)


def test_flags_agree_with_the_api():
    from inspect import signature

    from outdraft.engine.llm import LLM

    sampling = {one.name: getattr(SamplingParams(), one.name) for one in fields(SamplingParams)}
    for one in fields(SamplingFlags):
        assert default_of(one) == sampling[one.name], one.name
    assert set(sampling) - {one.name for one in fields(SamplingFlags)} == {
        "logprobs",
        "prompt_logprobs",
        "n",
        "structured_outputs",
    }
    parameters = signature(LLM.__init__).parameters
    for one in fields(EngineFlags):
        if one.name == "no_cache" or one.name.removesuffix("_options") in ("drafter", "verifier", "policy"):
            continue  # the first is of the process; options stand beside a name, in one mapping
        default = parameters[one.name].default
        assert one.name == "model" or default_of(one) == ({} if default is None and default_of(one) == {} else default)


def test_every_command_answers_help_from_its_options(capsys: pytest.CaptureFixture[str]):
    for name, command in all_commands():
        with pytest.raises(SystemExit) as left:
            main([*name.split(), "--help"])
        assert left.value.code == 0
        shown = capsys.readouterr().out
        for one in fields(command.options):
            assert "title" in one.metadata or one.metadata.get("positional") or flag_name(one.name) in shown.lower()


def test_docs_page_is_current():
    page = Path(__file__).parents[2] / "docs/cli.md"
    assert page.read_text() == cli_page.page(), "run: make docs-cli"


def test_examples_can_be_pasted_with_their_notes():
    lines = [line for _, command in all_commands() for line in command.epilog.splitlines()]
    pasted = "\n".join(line for line in lines if line.startswith(("  outdraft ", "  source ", "  curl ")))
    ran = subprocess.run(["bash", "-n"], input=pasted, capture_output=True, text=True)
    assert pasted.count("\n") > 45 and (ran.returncode, ran.stderr) == (0, "")


def test_help_and_version_do_not_wait_for_torch():
    for word in ("--help", "--version"):
        code = (
            "import sys\nfrom outdraft.cli.main import main\n"
            f"try: main([{word!r}])\nexcept SystemExit: pass\n"
            "sys.stderr.write(str([m for m in ('torch', 'rich', 'tokenizers', 'jinja2') if m in sys.modules]))"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stderr == "[]", word
        assert "outdraft" in ran.stdout


def test_a_chat_is_sampled_unless_asked_otherwise():
    from outdraft.cli.commands import chat, generate

    def asked(options: type, *words: str) -> SamplingParams:
        parser = argparse.ArgumentParser()
        add_flags(parser, options)
        return build(options, parser.parse_args(words)).sampling.params()

    assert (asked(chat.Options).temperature, asked(chat.Options).top_p) == (0.7, 0.95)
    assert asked(chat.Options, "--temperature", "0").temperature == 0 == asked(generate.Options).temperature
