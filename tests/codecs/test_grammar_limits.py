"""How long a refusal takes, in processor seconds: bad and huge forms of many kinds, compiled as for a request.

Nothing is asserted of the clock, which belongs to the machine: `-s` prints the slowest. What is asserted is that each
is refused, and that forms just inside the limits are not.
"""

import json
import random
from time import thread_time

import pytest

from outdraft.codecs.grammar.compile import Grammars
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import RequestError
from outdraft.options.shown import shown
from outdraft.options.structured import StructuredOutputsParams as Params
from outdraft.weights.hub import resolve

pytestmark = pytest.mark.slow


def fields(count, **more):
    return {"type": "object", "properties": {f"p{i}": {"type": "string", **more} for i in range(count)}}


def nested(depth):
    schema: dict = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


REFUSED = [
    *({"json": fields(count)} for count in (300, 400, 800, 1500, 2000, 3000, 30_000)),
    *({"json": {**fields(count), "additionalProperties": False}} for count in (400, 1000, 2500)),
    *({"json": json.dumps(fields(count))} for count in (1000, 3000, 300_000)),
    *({"json": nested(depth)} for depth in (30, 60, 400, 20_000)),
    *({"json": {"allOf": [{"type": "string", "pattern": f".*{i}x"} for i in range(n)]}} for n in (9, 15, 100)),
    *({"json": {"type": "integer", "multipleOf": n}} for n in (999_999_937, 10**15 + 37)),
    *({"json": {"anyOf": [fields(1) | {"required": [f"q{i}"]} for i in range(n)]}} for n in (800, 3000)),
    *({"json": {"enum": ["x" * 50] * n}} for n in (2000, 50_000)),
    *({"json": {"type": "object", "patternProperties": {f"^a{i}": {} for i in range(n)}}} for n in (40, 400)),
    {"json": {"allOf": [{"anyOf": [fields(1, minLength=j) for j in range(4)]} for _ in range(9)]}},
    {"json": {"$ref": "#"}},
    {"json": {"$ref": "http://x/y"}},
    {"json": {"type": "strin"}},
    {"json": {"not": {}}},
    *(
        {"json": {**fields(count), "properties": fields(count)["properties"] | late}}
        for count in (200, 240)
        for late in ({"z": {"type": "strin"}}, {"z": {"type": "string", "pattern": "("}}, {"z": {"not": {}}})
    ),
    *({"json": {**fields(count), "required": [f"p{i}" for i in range(count)]}} for count in (500, 590)),
    {"json": {**fields(150), "required": ["no such field"], "minProperties": 500}},
    *({"regex": text} for text in ("(", "a" * 100_000, "(?=a)", "[z-a]", "\\1", "(a*)*(", "x{2,1}")),
    *({"choice": ["x" * 30] * n} for n in (3000, 30_000)),
    *({"grammar": text} for text in ("start: x", "start: (", "root ::= (", "x" * 100_000, 'start: "a" b' * 900)),
    {"grammar": "start: " + " & ".join(f"/.*{i}.*/" for i in range(15))},
    {"grammar": "start: %json " + json.dumps({"allOf": [{"type": "string", "pattern": f".*{i}"} for i in range(15)]})},
]
TAKEN = [
    {"json": fields(190)},
    {"json": {**fields(300), "required": [f"p{i}" for i in range(300)]}},
    {"json": {"enum": [f"value number {i}" for i in range(2000)]}},
    {"json": nested(20)},
    {"regex": "(a{1,1000}){1,1000}"},
    {"choice": [f"text {i}" for i in range(1000)]},
]


@pytest.fixture(scope="module")
def grammars():
    codec = load_codec(resolve("zoo:target"))
    made = Grammars(codec, vocab_size=codec.vocab_size, ends=codec.eos_token_ids)
    made.constraint(Params(regex="a"), ignore_eos=False)  # the tree of tokens is built once a model
    return made


def test_bad_and_huge_forms_are_refused(grammars):
    times = []
    for form in REFUSED:
        params = Params(**form)
        began = thread_time()
        with pytest.raises(RequestError):
            grammars.constraint(params, ignore_eos=False)
        times.append((thread_time() - began, shown(form)))
    for seconds, form in sorted(times, reverse=True)[:5]:
        print(f"refused in {1000 * seconds:.1f} ms: {form}")


@pytest.mark.parametrize("form", TAKEN, ids=lambda form: str(form)[:40])
def test_forms_inside_the_limits_are_taken(grammars, form):
    assert grammars.constraint(Params(**form), ignore_eos=False)().allowed([]).any()


def test_noise_is_refused_or_followed(grammars):
    """Broken and random texts raise nothing but `RequestError`."""
    rng = random.Random(0)
    sound = json.dumps(fields(3, pattern="a+|b", maxLength=3)) + 'start: "a" b\nb: /[a-z]+/ [a-f]{2,5}(x|y)*?$^'
    slowest = 0.0
    for _ in range(3000):
        start = rng.randrange(len(sound))
        text = list(sound[start : start + rng.randint(1, 60)])
        for _ in range(rng.randint(0, 4)):
            text[rng.randrange(len(text))] = rng.choice('{}[]()"\\:,|*+?/\n\0é0a')
        params = Params(**{rng.choice(("json", "regex", "grammar")): "".join(text)})
        began = thread_time()
        try:
            grammars.constraint(params, ignore_eos=False)()
        except RequestError:
            slowest = max(slowest, thread_time() - began)
    print(f"noise refused in {1000 * slowest:.1f} ms at most")
