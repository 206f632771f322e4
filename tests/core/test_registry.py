"""Plug-ins are found by file name; wrong names and options are refused with the near miss."""

import re
from dataclasses import dataclass, field

import pytest

from outdraft.core.errors import ConfigError
from outdraft.core.registry import KINDS, Method, find, make_options, names, option_defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    max_ngram: int = field(default=3, metadata={"aliases": ("prompt_lookup_max",)})


METHOD = Method(name="toy", kind="drafter", summary="a toy", build=lambda options, port: None, options=Options)


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
