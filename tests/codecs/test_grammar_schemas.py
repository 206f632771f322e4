"""Small schemas, contradictory ones among them: each is refused before any work, or every text is JSON of the schema.

jsonschema is the judge. Texts are walks at random through what the constraint allows, drawn to short ones; one that is
cut says nothing.
"""

import json
import random
from functools import cache

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_tokens import TinyTokens

from outdraft.codecs.grammar.compile import Grammars
from outdraft.options.errors import RequestError
from outdraft.options.structured import StructuredOutputsParams as Params

TEXTS = [
    "<end>",
    *'{}[]":,.-+\\/ \n',
    *"0123456789abcdefghijklmnopqrstuvwxyzTZ",
    '{"',
    '":',
    "score",
    '"}',
    "true",
    "ab",
]
CODEC = TinyTokens(TEXTS, end=0)
SHORT = {CODEC.tokens.index(one.encode()) for one in ('"', "}", "]", ",", ":", "0", "1", "5", "a", "b", "x", "score")}
NAMES = ("a", "b", "score")
PATTERNS = ("^a$", "^score$", "^[ab]$", "a", "^.$", "^x+$", "b*", "^(a|b)$")
TEXTS_OF = ("^a$", "^[a-c]{2}$", "x", "^$", "^a{5}$", "^(a|b)*$")


@cache
def grammars():
    return Grammars(CODEC, vocab_size=CODEC.vocab_size, ends={0})


def some(**fields):
    """A table with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


LEAVES = st.one_of(
    st.sampled_from(
        [
            {"enum": [1, "a", None]},
            {"enum": [1, 2], "type": "string"},
            {"const": 5},
            {"const": 5, "type": "string"},
            {"enum": []},
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["a", "b"], "type": "string", "maxLength": 0},
            {"enum": [5, 7], "type": "integer", "minimum": 6},
            {"type": ["integer", "null"], "minimum": 3},
        ]
    ),
    st.builds(
        dict,
        st.sampled_from([{"type": "integer"}, {"type": "number"}]).flatmap(
            lambda kind: some(
                minimum=st.integers(-9, 20),
                maximum=st.integers(-9, 20),
                exclusiveMinimum=st.sampled_from([0, 4, 7]),
                exclusiveMaximum=st.sampled_from([1, 5, 8]),
                multipleOf=st.sampled_from([2, 5, 7]),
            ).map(lambda more: kind | more)
        ),
    ),
    some(
        pattern=st.sampled_from(TEXTS_OF),
        format=st.sampled_from(["date", "ipv4"]),
        minLength=st.integers(0, 6),
        maxLength=st.integers(0, 6),
    ).map(lambda more: {"type": "string"} | more),
)


def larger(part):
    """Objects, lists and combinations of smaller schemas."""
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    return st.one_of(
        some(
            properties=st.dictionaries(st.sampled_from(NAMES), part, max_size=2),
            required=names,
            additionalProperties=st.one_of(st.booleans(), part),
            minProperties=st.integers(0, 4),
            patternProperties=st.dictionaries(st.sampled_from(PATTERNS), part, max_size=2),
            maxProperties=st.integers(0, 3),
        ).map(lambda more: {"type": "object"} | more),
        some(
            items=st.one_of(part, st.booleans()),
            prefixItems=st.lists(part, min_size=1, max_size=2),
            minItems=st.integers(0, 4),
            maxItems=st.integers(0, 3),
        ).map(lambda more: {"type": "array"} | more),
        st.builds(
            lambda word, parts: {word: parts},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(part, min_size=1, max_size=2),
        ),
    )


def walk(form, rng):
    """A text, and whether it is whole."""
    output = []
    for _ in range(90):
        if form.is_over():
            return output, True
        may = form.allowed([]).nonzero().flatten().tolist()
        if may == [0] or (0 in may and rng.random() < 0.5):
            return output, True
        may = [token for token in may if token]
        token = rng.choice([token for token in may if token in SHORT] or may) if rng.random() < 0.9 else rng.choice(may)
        form.advance(token)
        output.append(token)
    return output, False


def check(schema, seed=0):
    """Walk through the schema's texts; False: it is refused."""
    try:
        make = grammars().constraint(Params(json=schema, disable_any_whitespace=True), ignore_eos=False)
    except RequestError as refused:
        assert "of structured_outputs " in str(refused)
        return False
    for i in range(4):
        output, is_whole = walk(make(), random.Random(4 * seed + i))
        if is_whole:
            text = CODEC.decode(output)
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    return True


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.recursive(LEAVES, larger, max_leaves=4), st.integers(0, 99))
def test_a_schema_is_refused_or_held(schema, seed):
    check(schema, seed)


SCORE = {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 50}
CLOSED = {"type": "object", "additionalProperties": False}
REFUSED = {
    "a pattern of a field": (
        {**CLOSED, "properties": {"score": SCORE}, "required": ["score"], "patternProperties": {"^score$": {}}},
        r"patternProperties '\^score\$' beside a field of this name",
    ),
    "names that may repeat": (
        {**CLOSED, "patternProperties": {"^a$": {"type": "boolean"}}, "minProperties": 2},
        "minProperties=2, with",
    ),
    "too few names": ({**CLOSED, "properties": {"a": {}}, "minProperties": 3}, "minProperties"),
    "fewer than required": ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, "maxProperties=1, less"),
    "bounds": ({"type": "object", "minProperties": 3, "maxProperties": 2}, "maxProperties=2, less"),
    "items": ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
    "no items": ({"type": "array", "items": False, "minItems": 1}, "cannot be compiled"),
    "numbers": ({"type": "integer", "minimum": 5, "maximum": 4}, "cannot be compiled"),
    "multiples": ({"type": "integer", "minimum": 1, "maximum": 6, "multipleOf": 7}, "structured_outputs"),
    "a type": ({"enum": [1, 2], "type": "string"}, "structured_outputs"),
    "all of two": ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "cannot be compiled"),
    "a forbidden field": ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "cannot be compiled"),
    "a format": ({"type": "string", "format": "date", "maxLength": 3}, "structured_outputs"),
    "a pattern": ({"type": "string", "pattern": "^a{5}$", "maxLength": 3}, "structured_outputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_text_can_hold_is_refused_with_the_fault(name):
    schema, told = REFUSED[name]
    for one in (schema, {"type": "object", "properties": {"x": schema}, "required": ["x"]}):
        with pytest.raises(RequestError, match=told):
            grammars().constraint(Params(json=one), ignore_eos=False)


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, "properties": {"a": {"type": "null"}}, "patternProperties": {"^a": {"type": "null"}}},
        {"type": "object", "properties": {"a": {"type": "null"}}, "patternProperties": {"^a$": {"type": "null"}}},
        {"type": "object", "minProperties": 1, "additionalProperties": {"type": "null"}},
        {**CLOSED, "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "minProperties": 1},
    ],
    ids=str,
)
def test_what_can_be_held_is_taken(schema):
    assert check(schema)


def only(kind, number):
    """A schema of one number."""
    return {"type": kind, "minimum": number, "maximum": number}


TOO_LARGE = {
    "const=9007199254740993": {"const": 2**53 + 1},
    "const=9007199254740995": {"properties": {"const": {"const": [{"a": 2**53 + 3}]}}},
    "const=9223372036854775808": {"const": 2**63},
    "const=-9223372036854775807": {"const": -(2**63) + 1},
    r"const=1e\+19": {"type": "integer", "const": 1e19},
    "enum=100000000000000001": {"anyOf": [{"type": "null"}, {"enum": ["a", 10**17 + 1]}]},
    "minimum=100000000000000001": only("integer", 10**17 + 1),
    "minimum=1152921504606846976": only("number", 2**60),
    "minimum=9223372036854775808": {"type": "integer", "minimum": 2**63},
    "minimum=-9223372036854775808": {"type": "integer", "minimum": -(2**63)},
    "maximum=1152921504606847000": {"type": "number", "maximum": 1152921504606847000},
    "maximum=9223372036854775807": {"allOf": [{"type": "integer"}, {"maximum": 2**63 - 1}]},
    "maximum=9007199254740993": {"$ref": "#x", "$defs": {"maximum": {"$anchor": "x", "maximum": 2**53 + 1}}},
    "exclusiveMinimum=9007199254740992": {"type": "integer", "exclusiveMinimum": 2**53},
    "exclusiveMaximum=9007199254740995": {"type": "integer", "exclusiveMaximum": 2**53 + 3},
    "multipleOf=9007199254740993": {"type": "integer", "multipleOf": 2**53 + 1},
    "maximum=1000": {"type": "number", "maximum": 10**400},
}


@pytest.mark.parametrize("told", TOO_LARGE)
def test_a_number_that_floats_would_round_is_refused_with_its_keyword(told):
    schema = TOO_LARGE[told]
    lark = Params(grammar=f"start: %json {json.dumps(schema)}")
    for form in (Params(json=schema), Params(json=json.dumps(schema)), lark):
        with pytest.raises(
            RequestError, match=f"json of structured_outputs has {told}.* kept exactly: make an id a st"
        ):
            grammars().constraint(form, ignore_eos=False)


LARGE = [
    (only("integer", 2**63 - 1), "9223372036854775807"),
    ({"type": "integer", "minimum": 2**63 - 1, "maximum": 2**64 - 1}, "9223372036854775807"),
    ({"type": "integer", "exclusiveMaximum": -(2**53) + 1, "minimum": -(2**53)}, "-9007199254740992"),
    (only("number", 10**17), "100000000000000000"),
    (only("number", 1e20), "100000000000000000000"),
    ({"const": 2**60}, "1152921504606846976"),
    ({"enum": [-(2**62)], "type": "number"}, "-4611686018427387904"),
    ({"const": 1e20}, "100000000000000000000"),
    ({"const": "a", "default": 2**53 + 1, "examples": [{"const": 2**53 + 1}]}, '"a"'),
    (
        {**CLOSED, "properties": {"const": only("number", 1e20)}, "required": ["const"]},
        '{"const":100000000000000000000}',
    ),
]


@pytest.mark.parametrize(("schema", "text"), LARGE, ids=str)
def test_large_numbers_that_are_taken_are_written_as_they_are(schema, text):
    form = grammars().constraint(Params(json=schema, disable_any_whitespace=True), ignore_eos=False)()
    assert CODEC.decode(walk(form, random.Random(0))[0]) == text


@pytest.mark.parametrize(
    ("kind", "word", "number"),
    [
        ("integer", "minimum", 9 * 10**17),
        ("integer", "minimum", -(2**63) + 1024),
        ("integer", "maximum", 2**63 - 1),
        ("integer", "exclusiveMaximum", 2**63),
        ("number", "minimum", -7 * 10**17),
        ("number", "maximum", 10**17),
        ("number", "exclusiveMinimum", 3 * 10**16),
    ],
)
def test_large_bounds_that_are_taken_leave_out_no_neighbour(kind, word, number):
    schema = {"type": kind, word: number}
    make = grammars().constraint(Params(json=schema), ignore_eos=False)
    for near in (number + step for step in (-1024, -2, -1, 0, 1, 2, 1024)):
        assert fits(make(), str(near)) == jsonschema.Draft202012Validator(schema).is_valid(near)


def fits(form, text):
    for token in CODEC.encode(text):
        if not form.allowed([])[token]:
            return False
        form.advance(token)
    return bool(form.allowed([])[0])
