"""Plug-ins are found by file name; wrong names and options are refused with the near miss."""

import re
from dataclasses import dataclass, field

import pytest

from outdraft.core.method import CONTRACT, DrafterMethod
from outdraft.core.registry import KINDS, find, installed, make_options, names, option_defaults
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    max_ngram: int = field(default=3, metadata={"aliases": ("prompt_lookup_max",)})


METHOD = DrafterMethod(
    name="toy", summary="a toy", build=lambda options, port: None, options=Options, contract=CONTRACT
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_listed_plug_in_is_what_it_says(kind):
    for name in names(kind):
        method = find(kind, name)
        assert method.name == name and method.kind == kind and method.summary
        method.options()  # every option has a default


def test_near_miss_is_named():
    with pytest.raises(ConfigError, match="did you mean 'ngram'"):
        find("drafter", "ngrm")
    with pytest.raises(ConfigError, match="did you mean 'max_ngram'"):
        make_options(METHOD, {"max_ngrm": 2})


def test_aliases_reach_the_option_and_collisions_are_refused():
    assert make_options(METHOD, {"prompt_lookup_max": 5}).max_ngram == 5
    with pytest.raises(ConfigError, match="twice"):
        make_options(METHOD, {"prompt_lookup_max": 5, "max_ngram": 4})


@pytest.mark.parametrize("value", ["x", 2.5, True, None, [2]])
def test_a_value_of_another_type_is_named(value):
    with pytest.raises(ConfigError, match=re.escape(f"max_ngram={value!r} of drafter 'toy' must be a whole number")):
        make_options(METHOD, {"prompt_lookup_max": value})


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_fits_its_own_type(kind):
    for name in names(kind):
        method = find(kind, name)
        assert make_options(method, option_defaults(method)) == method.options()


def test_a_plug_in_from_elsewhere():
    assert find("drafter", f"{__name__}:METHOD") is METHOD
    for wrong in ("no.such.module:X", f"{__name__}:Options"):
        with pytest.raises(ConfigError):
            find("drafter", wrong)


def test_a_plug_in_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="is a DrafterMethod; it must be a RuleMethod"):
        find("verifier", f"{__name__}:METHOD")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package that brings one plug-in, as its module's text says."""

    def install(name: str, text: str) -> None:
        (tmp_path / f"{name}_module.py").write_text(text)
        facts = tmp_path / f"{name}_package-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[outdraft.methods]\n{name} = {name}_module:METHOD\n")
        monkeypatch.syspath_prepend(tmp_path)

    return install


MINE = """
from dataclasses import dataclass
from outdraft.core.method import DrafterMethod

@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    pass

METHOD = DrafterMethod(name="mine", summary="mine", build=lambda options, port: None, options=Options, contract={})
"""
BEFORE = """
from outdraft.core.registry import Method
METHOD = Method(name="old", kind="drafter", summary="old", build=lambda options, port: None, options=dict)
"""


def test_an_entry_point_registers(package):
    package("mine", MINE.format(CONTRACT))
    assert find("drafter", "mine").summary == "mine"
    assert [(one.name, one.place) for one in installed()] == [("mine", "mine_module:METHOD")]
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        find("drafter", "mien")
    with pytest.raises(ConfigError, match="is a DrafterMethod"):
        find("policy", "mine")


@pytest.mark.parametrize("text", [BEFORE, MINE.format(CONTRACT - 1), MINE.format(CONTRACT + 1)])
def test_another_contract_is_one_error_that_names_the_change(package, text):
    package("old", text)
    for name in ("old", "old_module:METHOD"):
        with pytest.raises(ConfigError, match=r"contract.*Method\(kind=.*became DrafterMethod.*add_a_method\.md"):
            find("drafter", name)
    assert isinstance(installed()[0].found, ConfigError)


def test_a_plug_in_says_which_contract_it_was_written_for(package):
    package("silent", MINE.replace(", contract={}", ""))
    for name in ("silent", "silent_module:METHOD"):
        with pytest.raises(ConfigError, match=r"write contract=\d+ in its DrafterMethod\(\.\.\.\)"):
            find("drafter", name)
    assert find("verifier", "outdraft.testing.accept_all:METHOD").contract is None, "what ships need not say"


def test_shapes_are_what_the_options_make_them():
    for name in names("drafter"):
        method = find("drafter", name)
        try:
            shape = method.shape_of(method.options())
        except ConfigError as gone:  # it composes others by default, and one of them was taken out of this tree
            assert name in ("several", "merge") and str(gone).startswith("unknown drafter"), name
            continue
        assert shape in ("nothing", "chain", "tree")
        for shape, given in method.forms.items():
            assert method.shape_of(make_options(method, given)) == shape, name
