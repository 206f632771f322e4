"""How a command ends where its streams do: a reader that leaves, an output that is closed, Ctrl-C before it began."""

import re
import subprocess
import sys

import pytest

from outdraft import LLM
from outdraft.cli import main as command_line
from outdraft.core.registry import KINDS, names

RUN = "import sys; from outdraft.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("words", [["methods"], ["methods", "ngram"], ["methods", "--json"]])
def test_a_reader_that_leaves_is_no_failed_proof(words):
    with subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.wait() == 141


def test_an_output_that_is_closed_is_no_error():
    ran = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" methods --json >&-', sys.executable, RUN],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_interrupt_ends_alike_wherever_it_comes(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "make_parser", interrupted)
    assert command_line.main(["methods"]) == 130
    assert capsys.readouterr().err == "\n"


@pytest.mark.parametrize("kind", ["drafter", "verifier", "policy"])
def test_options_are_given_in_python_as_the_list_says(outdraft, kind):
    assert kind in KINDS
    name = {"drafter": "ngram", "verifier": "typical", "policy": "auto"}[kind]
    assert name in names(kind)
    told = " ".join(outdraft("methods", name).out.split())
    given = re.search(r"in Python (\w+)=(\{'name': '\w+', )NAME: VALUE\}\)", told)
    assert given is not None and given[1] == kind
    option = re.search(r"(\w+) = (\S+)", told)
    assert option is not None
    words = {"drafter": "ngram", given[1]: eval(f"{given[2]}'{option[1]}': {option[2]}}}")}
    with LLM("zoo:target", **words) as llm:
        assert llm.config[kind]


def test_a_narrow_table_drops_no_letter(outdraft, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = outdraft("methods", "--kind", "recipe")
    assert ran.code == 0 and "…" not in ran.out
