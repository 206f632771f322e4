"""Every option of every method is explained, with the values that it takes."""

from dataclasses import dataclass, field
from math import inf
from typing import Literal

import pytest

from outdraft.core.registry import KINDS, find, names
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.options.words import option_words

METHODS = [pytest.param(kind, name, id=f"{kind}-{name}") for kind in KINDS for name in names(kind)]
UNLIMITED = {"seed", "fill_token", "enough"}  # numbers of which every one means something


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_every_option_has_a_sentence_and_its_values(kind, name):
    for one in option_words(find(kind, name).options):
        assert len(one.meaning.split()) >= 5 and one.meaning.endswith("."), f"write what {name}.{one.name} is beside it"
        assert one.values
        if "number" in one.values and not one.values.startswith("a list, each a list") and "skip_" not in one.name:
            assert "," in one.values or one.name in UNLIMITED, f"{name}.{one.name}: {one.values}"


@dataclass(frozen=True, kw_only=True)
class Base:
    width: int = 1  # the width of the base
    depth: int = field(  # how deep
        default=2, metadata={"aliases": ("levels",)}
    )

    def __post_init__(self) -> None:
        check_range(self, "width", least=1, most=7)
        check_range(self, "share", least=0, most=1, note="of all")


@dataclass(frozen=True, kw_only=True)
class Own(Base):
    # a comment of two lines: the first
    # and the second
    share: float = 0.5

    kind: Literal["a", "b"] = "a"
    width: int = 3  # the width of its own # with a sign


def test_comments_and_ranges_are_read_where_they_stand():
    told = {one.name: one for one in option_words(Own)}
    assert told["width"].meaning == "The width of its own # with a sign."
    assert told["depth"].meaning == "How deep." and told["depth"].aliases == ("levels",)
    assert told["share"].meaning == "A comment of two lines: the first and the second."
    assert told["kind"].meaning == "" and told["kind"].values == "one of 'a', 'b'"
    assert told["width"].values == "a whole number, between 1 and 7"
    assert told["share"].values == "a number, between 0 and 1 (of all)"
    assert told["depth"].values == "a whole number"


def test_the_range_is_the_one_that_is_checked():
    """Numbers at the ends of every printed range "between A and B" are taken, and those beyond them are refused."""
    seen = 0
    for kind in KINDS:
        for name in names(kind):
            options = find(kind, name).options
            for one in option_words(options):
                words = one.values.replace(",", "").split()
                if "between" in words and one.values.startswith(("a number", "a whole number")) and "sum" not in words:
                    least = words[words.index("between") + 1]
                    if least.replace(".", "").lstrip("-").isdigit():
                        with pytest.raises(ConfigError, match=one.name):
                            options(**{one.name: float(least) - 0.5})
                        with pytest.raises(ConfigError, match=one.name):
                            options(**{one.name: inf})
                        seen += 1
    assert seen > 50


def test_options_whose_source_is_not_there_have_no_meaning():
    space: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass\nclass Made:\n    x: int = 1  # said\n", space)
    (one,) = option_words(space["Made"])
    assert (one.name, one.meaning, one.values) == ("x", "", "a whole number")
