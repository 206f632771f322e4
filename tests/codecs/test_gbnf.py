"""Characters that GBNF names by their numbers, wherever they stand."""

from functools import cache

import pytest
from tiny_tokens import TinyTokens

from outdraft.codecs.grammar.compile import Grammars
from outdraft.options.errors import RequestError
from outdraft.options.structured import StructuredOutputsParams as Params

OTHERS = "\x80\x85\xa0é\u03b1\u2028\u4e2d\ue9ca\ufeff\U0001f600\U0010ffff"
CODEC = TinyTokens(["<end>", *map(chr, range(128)), *OTHERS], end=0)


@cache
def grammars():
    return Grammars(CODEC, vocab_size=CODEC.vocab_size, ends={0})


def first(grammar):
    """The characters that a text may begin with."""
    form = grammars().constraint(Params(grammar=grammar), ignore_eos=False)()
    return CODEC.decode(form.allowed([]).nonzero().flatten().tolist())


@pytest.mark.parametrize("character", [*map(chr, range(128)), *OTHERS], ids=lambda character: f"{ord(character):x}")
def test_a_number_stands_for_its_character(character):
    numbers = [f"\\U{ord(character):08X}", *([f"\\u{ord(character):04x}"] if ord(character) < 1 << 16 else [])]
    others = CODEC.decode(range(CODEC.vocab_size)).replace(character, "")
    for number in numbers:
        assert first(f'root ::= "{number}fe" | "{number}cafe"') == character
        assert first(f"root ::= [{number}]+") == character
        assert first(f"root ::= [^{number}]+ # of {number}") == others
    assert first(f"root ::= [{numbers[0]}-\\U0010ffff]") == "".join(
        one for one in CODEC.decode(range(CODEC.vocab_size)) if one >= character
    )


@pytest.mark.parametrize(
    ("quoted", "text"), [(r"\\u0041", r"\u0041"), (r"\\\u0041", r"\A"), (r"\"\u0022", '""'), (r"\u00e9cafe", "écafe")]
)
def test_a_backslash_before_it_counts(quoted, text):
    form = grammars().constraint(Params(grammar=f'root ::= "{quoted}"'), ignore_eos=False)()
    assert CODEC.decode(form.forced()) == text


@pytest.mark.parametrize("number", [r"\ud83d", r"\uDE00", r"\U0000d800", r"\U00110000", r"\UFFFFFFFF"])
def test_what_is_no_character_is_refused(number):
    with pytest.raises(
        RequestError, match=r"GBNF, and cannot be read: \\[uU]\w+ is no character: write the number of a"
    ):
        first(f'root ::= "a" [{number}]')


def test_lark_keeps_its_own_numbers():
    assert first('start: %json {"const": "\\u0041"} // no ::=') == '"'
