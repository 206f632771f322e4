"""Repetitions are multiplied out and counted before anything is compiled, whatever they are repetitions of."""

from contextlib import suppress

import pytest

from outdraft.codecs.grammar.counting import TooDeep
from outdraft.codecs.grammar.counting.lark import count_lark
from outdraft.codecs.grammar.counting.regex import count_regex
from outdraft.codecs.grammar.counting.schema import count_schema
from outdraft.codecs.grammar.spelling import MOST_LETTERS, spell
from outdraft.options.errors import RequestError
from outdraft.options.structured import StructuredOutputsParams as Params

REGEXES = {
    "ab{3}": 4,
    "(a|bc){2,10}": 30,
    "(x{100}){1000}": 100_000,
    "x{12000000}": 12_000_000,
    r"\p{L}{5}": 5,
    r"\x{41}{3}": 3,
    "[a{3}]{4}": 4,
    "[]a]{5}": 5,
    "[^]a]{5}": 5,
    "((a{2}){3}){4}": 24,
    "(?:ab){3}|c": 7,
    "(?P<n>ab){3}": 6,
    "a*b+": 2,
    "a{2,}": 2,
    "": 1,
    r"a\{5}": 4,
    "(?i)a{9}": 9,
    "a{3}{4}": 12,
    "x{ 7 }": 7,
    "a{2}b{3}": 5,
    "(a{2}b){3}": 9,
    "[[:alpha:]x]{3}": 3,
}
GRAMMARS = {
    'start: a{3} | B~2..5\na: /[a-z]{1,9}/\nB: "xy"': 27 + 10,
    'start: ("a" | "bc"){4}': 12,
    'start: a ~ 5\na: [b]~3\nb: "c"?': 15,
    'start: "a"  // {1000}\n  | "b"{2}': 3,
    'start: a::0\na::_: "x" %if is_ones([0:4])\n   | "y"{7}': 10,
    'start: x "y"{1000}{1000}\nx[max_tokens=5]: /a/': 1_000_001,
    "start: e\ne: e e | /./": 3,
    'start: %json {"type": "string", "maxLength": 20} /x{5}/': 25,
}
DOUBLED = "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(40)) + '\nA40: "x"'
SCHEMAS = [
    ({"maxLength": 20}, 20),
    ({"minLength": 30}, 30),
    ({"items": {"maxLength": 20}, "maxItems": 3}, 62),
    ({"items": {"maxLength": 20}, "minItems": 3}, 62),
    ({"pattern": "x{500}"}, 502),
    ({"$ref": "#"}, 5),
    ({"minProperties": 50, "additionalProperties": {"maxLength": 10}}, 502),
    ({"enum": ["x" * 30]}, 36),
    ({"anyOf": [{"maxLength": 5}, {"maxLength": 7}]}, 14),
    ({"properties": {"ab": {"maxLength": 5}}}, 9),
]
TOO_MANY = {
    "a regex": {"regex": "x{12000000}"},
    "nested": {"regex": "((x{1000}){1000}){2}"},
    "a pattern": {"json": {"type": "object", "properties": {"a": {"type": "string", "pattern": "x{12000000}"}}}},
    "a key": {"json": {"type": "object", "patternProperties": {"x{12000000}": {}}}},
    "blanks": {"json_object": True, "whitespace_pattern": " {12000000}"},
    "a terminal": {"grammar": "start: /x{12000000}/"},
    "of a rule": {"grammar": 'start: a{1000}\na: b~1..1000\nb: "xyz"'},
    "doubled rules": {"grammar": DOUBLED},
    "GBNF": {"grammar": 'root ::= a{2000}\na ::= "x"{2000}'},
    "a schema in a grammar": {"grammar": 'start: %json {"type": "string", "pattern": "x{12000000}"}'},
    "lists of texts": {"json": {"type": "array", "maxItems": 2000, "items": {"type": "string", "maxLength": 2000}}},
    "references": {
        "json": {
            "$ref": "#/$defs/a0",
            "$defs": {**{f"a{i}": {"prefixItems": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}, "a40": {}},
        }
    },
}
TOO_DEEP = {
    "rules": {"grammar": "start: A0\n" + "\n".join(f"A{i}: A{i + 1}" for i in range(3900)) + '\nA3900: "x"'},
    "brackets": {"grammar": "start: " + "(" * 9000 + '"a"' + ")" * 9000},
    "references": {
        "json": {
            "$ref": "#/$defs/a0",
            "$defs": {**{f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(300)}, "a300": {"type": "string"}},
        }
    },
}


@pytest.mark.parametrize("pattern", REGEXES)
def test_letters_of_a_regex(pattern):
    assert count_regex(pattern) == REGEXES[pattern]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_letters_of_a_grammar(grammar):
    assert count_lark(grammar, count_schema) == GRAMMARS[grammar]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema[0]))
def test_letters_of_a_schema(schema):
    assert count_schema(schema[0]) == schema[1]


def test_a_chain_of_rules_is_followed_in_any_order():
    rules = [f"A{i}: A{i + 1}" for i in range(3900)]
    for order in (rules, rules[::-1]):
        with pytest.raises(TooDeep):
            count_lark("\n".join([*order, 'A3900: "x"', "start: A0"]), count_schema)


@pytest.mark.parametrize("name", TOO_MANY)
def test_what_repeats_too_often_is_refused_with_its_count(name):
    with pytest.raises(RequestError, match=rf"structured_outputs has .*\d+ letters, .*{MOST_LETTERS} are the most"):
        spell(Params(**TOO_MANY[name]))


@pytest.mark.parametrize("name", TOO_DEEP)
def test_what_is_too_deep_is_refused(name):
    with pytest.raises(RequestError, match="too many levels deep: flatten it"):
        spell(Params(**TOO_DEEP[name]))


def test_what_is_just_few_enough_is_taken():
    for form in ({"regex": "(x{1000}){1000}"}, {"grammar": "start: /x{1000000}/"}, {"json": {"maxLength": 999_000}}):
        assert spell(Params(**form))


UNITS = (
    "x{ ",
    "/*",
    '"\\',
    "a\n",
    "%json {",
    "/a\\",
    "a ~",
    "a~1..",
    "a{,",
    "a[x",
    "a::",
    "\n",
    "a{",
    "/",
    "(",
    r"\p{",
    "(?<",
    "[",
)


@pytest.mark.parametrize("unit", UNITS)
def test_whatever_is_left_open_is_read_once(unit):
    """Were it read again for each beginning, this would take minutes."""
    text = unit * (60_000 // len(unit))
    assert count_regex(text) >= 1
    with suppress(TooDeep):
        assert count_lark(text, count_schema) >= 1
