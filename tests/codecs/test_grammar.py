"""Constraints of grammars against languages that are listed here: what may follow is what some text goes on with."""

import random
from functools import cache, partial

import pytest
import torch
from tiny_tokens import TinyTokens

from outdraft.codecs.grammar import budget
from outdraft.codecs.grammar import compile as compiling
from outdraft.codecs.grammar.compile import Grammars
from outdraft.core.constraint import Form
from outdraft.options.errors import DecodingError, RequestError
from outdraft.options.structured import StructuredOutputsParams as Params

TOKENS = ["<end>", "a", "b", "c", "ab", "ba", "abc", "cc", "é", "<other end>"]
ROWS = 13  # of the model: three ids beyond the tokenizer's
CODEC = TinyTokens(TOKENS, end=0)


@cache  # each has a child process
def grammars(ends=frozenset({0, 9})):
    return Grammars(CODEC, vocab_size=ROWS, ends=ends)


def begin(params, **settings):
    return grammars(**settings).constraint(params, ignore_eos=False)()


def told(mask):
    return set(mask.nonzero().flatten().tolist())


def may_follow(texts, written, ends=(0, 9)):
    """Which tokens keep the bytes `written` a beginning of one of the texts, and the ends where they are whole."""
    follow = {
        i
        for i, token in enumerate(CODEC.tokens)
        if i not in (0, 9) and any(text.startswith(written + token) for text in texts)
    }
    return follow | set(ends if written in texts else ())


def random_texts(rng):
    return sorted({"".join(rng.choice("abcé") for _ in range(rng.randint(1, 6))) for _ in range(rng.randint(1, 6))})


@pytest.mark.parametrize("seed", range(40))
def test_masks_are_those_of_the_listed_texts(seed):
    """Random languages, random walks; at every step random paths ahead, sound and forbidden ones."""
    rng = random.Random(seed)
    words = random_texts(rng)
    texts = {word.encode() for word in words}
    params = Params(choice=words) if seed % 2 else Params(regex="|".join(words))
    form, output, written = begin(params), [], b""
    while True:
        assert isinstance(form, Form)
        allowed = told(form.allowed([]))
        assert allowed == expected(form, may_follow(texts, written))
        assert form.is_over() == (not may_follow(texts, written, ()))
        only = {text[len(written) :] for text in texts if text.startswith(written)}
        forced = b"".join(CODEC.tokens[i] for i in form.forced())
        assert all(text.startswith(forced) for text in only)
        afresh = begin(params)
        for token in output:
            afresh.advance(token)
        assert afresh.allowed([]).equal(form.allowed([]))
        if form.is_over():
            return
        for _ in range(8):
            path = [rng.randrange(ROWS + 2) for _ in range(rng.randint(1, 3))]
            if rng.random() < 0.8:  # along what is allowed
                path, ahead = [], written
                for _ in range(rng.randint(1, 3)):
                    if not (follow := sorted(may_follow(texts, ahead, ()))):
                        break
                    path.append(rng.choice(follow))
                    ahead += CODEC.tokens[path[-1]]
                there = begin(params)  # nothing but the tokens themselves decides
                for token in [*output, *path]:
                    there.advance(token)
                assert told(form.allowed(path)) == expected(there, may_follow(texts, ahead))
            assert form.allowed(path).any()  # no text is left without a token, whatever is asked
        token = rng.choice(sorted(allowed - {0, 9}))
        form.advance(token)
        output.append(token)
        written += CODEC.tokens[token]


def expected(form, may):
    """What may follow; of a forced text the tokenizer's own first token alone."""
    forced = form.forced()
    assert set(forced[:1]) <= may
    return set(forced[:1]) or may


def test_ids_beyond_the_tokenizer_are_never_allowed():
    form = begin(Params(regex=".+"))
    assert form.allowed([]).shape == (ROWS,) and told(form.allowed([])) == {1, 2, 3, 4, 5, 6, 7, 8}
    assert told(form.allowed([1])) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}


def test_an_end_is_allowed_where_the_text_is_whole_and_ends_it():
    form = begin(Params(regex="a+"))
    assert told(form.allowed([])) == {1}
    form.advance(1)
    assert told(form.allowed([])) == {0, 1, 9} and not form.is_over()
    assert form.allowed([0]).all() and form.allowed([0, 3]).all()  # no text comes there
    form.advance(9)
    assert form.is_over() and form.allowed([]).all() and form.forced() == []


def test_ends_that_are_ignored_are_never_allowed():
    form = grammars().constraint(Params(regex="a+"), ignore_eos=True)()
    form.advance(1)
    assert told(form.allowed([])) == {1}
    anything = grammars().constraint(Params(regex=".+"), ignore_eos=True)()
    assert told(anything.allowed([])) == told(anything.allowed([4])) == {1, 2, 3, 4, 5, 6, 7, 8}  # nor are they text


def test_what_is_forced_stops_at_a_choice():
    form = begin(Params(choice=["abcabca", "abcabccc"]))
    assert form.forced() == [6]  # the second "abc" could become a longer token with what follows
    assert told(form.allowed([])) == {6}
    form.advance(6)
    form.advance(6)
    assert form.forced() == [] and told(form.allowed([])) == {1, 3, 7}


def test_a_forbidden_token_is_refused_and_harms_nothing():
    form = begin(Params(choice=["ab", "abc"]))
    for token in (3, 11):
        with pytest.raises(DecodingError, match=f"token {token}"):
            form.advance(token)
    assert told(form.allowed([])) == {1, 4, 6}


def test_texts_of_one_form_are_apart():
    make = grammars().constraint(Params(choice=["ab", "cc"]), ignore_eos=False)
    one, two = make(), make()
    one.advance(1)
    assert told(one.allowed([])) == {2} and told(two.allowed([])) == {1, 3, 4, 7}


def test_a_mask_that_takes_too_much_work_ends_the_request_alone():
    """A path ahead that fails leaves the text where it was."""
    form = begin(Params(regex="a(ab|c)"))
    honest = form._matcher

    class Failing:
        def __getattr__(self, name):
            return getattr(honest, name)

        def is_error(self):
            return True

        def get_error(self):
            return "too many steps\n<state>"

    form.advance(1)
    form._matcher = Failing()
    with pytest.raises(RequestError, match="too much work behind 2 tokens of output: too many steps"):
        form.allowed([1])
    assert told(form.allowed([])) == {1, 3, 4}
    assert told(form.allowed([1])) == {2}


@pytest.mark.parametrize("asks", [False, True])
def test_a_kept_token_that_meets_a_limit_is_the_forms_fault(monkeypatch, asks):
    """And none of a rule that kept what is forbidden, which would be a fault of ours."""
    monkeypatch.setattr(compiling, "LIMITS", {**compiling.LIMITS, "max_items_in_row": 60})
    made = Grammars(CODEC, vocab_size=ROWS, ends={0, 9})
    form = made.constraint(Params(grammar="start: e\ne: e e | /./"), ignore_eos=False)()
    with pytest.raises(RequestError, match="structured_outputs: the form takes too much work behind"):
        for _ in range(60):
            assert not asks or form.allowed([])[1]
            form.advance(1)


def test_all_texts_of_a_request_share_what_masks_may_cost(monkeypatch):
    monkeypatch.setattr(budget, "TOKEN_SECONDS", 0.0)
    make = grammars().constraint(Params(regex="[ab]+"), ignore_eos=False)
    one, two, other = make(), make(), begin(Params(regex="[ab]+"))
    assert told(one.allowed([])) == told(two.allowed([])) == {1, 2, 4, 5}
    one._budget.charge(0.09)
    assert told(two.allowed([])) == {1, 2, 4, 5}
    for _ in range(5):
        one._budget.charge(0.09)
    with pytest.raises(RequestError, match=r"structured_outputs: .* masks took 0\.\d\d s of .* 0\.25 s are the most"):
        two.allowed([])
    assert told(other.allowed([])) == {1, 2, 4, 5}
    other._budget.charge(0.11)
    other.advance(1)
    other._budget.charge(0.101)
    with pytest.raises(RequestError, match=r"masks took up to 110 ms of processor time: 100 ms are the most"):
        other.advance(1)


def test_a_pause_of_the_machine_makes_no_mask_dear():
    form = begin(Params(regex="[ab]+"))
    for seconds in (0.0002, 0.0002, 3.0):
        form._budget.charge(seconds, is_mask=True)
    assert not form.is_dear
    form._budget.charge(0.01, is_mask=True)
    assert form.is_dear, "two in a row"


def test_a_pause_of_the_machine_ends_no_request():
    """However long it is, and one for each 256 tokens more."""
    form = begin(Params(regex="[ab]+"))
    form._budget.charge(3.0)
    form.allowed([])
    for _ in range(budget.PAUSE_TOKENS):
        form.advance(1)
    form._budget.charge(3.0)
    form.allowed([])
    form._budget.charge(0.101)
    with pytest.raises(RequestError, match=r"masks took up to 3000 ms"):
        form.allowed([])


def test_a_vocabulary_larger_than_a_pipe_reaches_the_child():
    """Pipes hold 64 KiB; vocabularies of real models have 50,000 tokens and more."""
    codec = TinyTokens([*TOKENS, *(f"word{i:06}" for i in range(30_000))], end=0)
    form = Grammars(codec, vocab_size=len(codec.tokens), ends={0}).constraint(
        Params(regex="word000007"), ignore_eos=False
    )()
    assert told(form.allowed([])) == {len(TOKENS) + 7}


def test_masks_that_take_long_are_dear_until_they_are_quick_again():
    form = begin(Params(regex="[ab]+"))
    form.allowed([])
    assert not form.is_dear
    for _ in range(3):
        form._budget.charge(0.004, is_mask=True)
        for _ in range(9):
            form._budget.charge(0.0)  # other calls of the library are no masks
    assert form.is_dear
    for _ in range(12):
        form._budget.charge(0.0001, is_mask=True)
    assert not form.is_dear


def test_masks_are_kept_along_the_path_that_comes():
    form = begin(Params(choice=["abcc", "ac"]))
    ahead = form.allowed([1, 2])
    form.advance(1)
    assert form.allowed([2]) is ahead


def test_compiled_once_and_not_kept_for_ever(monkeypatch):
    """What is kept is bounded in bytes, as the child process measures them."""
    made = Grammars(CODEC, vocab_size=ROWS, ends={0, 9})
    count = []
    monkeypatch.setattr(
        made, "_compile", lambda form, *rest: count.append(form.regex) or Grammars._compile(made, form, *rest)
    )
    made.constraint(Params(regex="a"), ignore_eos=False)
    monkeypatch.setattr(compiling, "MOST_KEPT", 5 * made._kept.popitem()[1][1] // 2)
    for regex in ("a", "a", "b", "a", "c", "b"):
        made.constraint(Params(regex=regex), ignore_eos=False)
    assert count == ["a", "a", "b", "c", "b"] and len(made._kept) == 2
    made.constraint(Params(regex=r"\p{L}" * 2000), ignore_eos=False)  # larger than all that may be kept
    assert not made._kept


def test_a_missing_library_is_named_with_its_cure(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    grammars.cache_clear()
    with pytest.raises(RequestError, match=r"pip install 'outdraft\[structured\]'"):
        begin(Params(regex="a"))


def test_forced_text_of_a_tokenizer_that_begins_with_a_space():
    """Such a tokenizer puts a space before whatever it reads, which must not come into the middle of a text."""
    codec = TinyTokens(["<end>", " a", " b", "a", "b", "\n", " \n", " "], end=0)
    codec.strips_space = True
    plain = codec.encode
    codec.encode = lambda text, **rest: plain(" " + text)
    form = Grammars(codec, vocab_size=8, ends={0}).constraint(Params(regex="abab"), ignore_eos=False)()
    assert form.forced() == [3, 4, 3, 4]


BAD = {
    "no JSON": (Params(json="{"), "json of structured_outputs is no JSON"),
    "no table": (Params(json="[1]"), "must be a schema, a table, not list"),
    "an unknown type": (Params(json={"type": "strin"}), "json of .* cannot be compiled: .*strin"),
    "an object in it": (Params(json={"default": object()}), "holds object, which JSON does not know"),
    "too long": (Params(json={f"p{i}": "x" * 100 for i in range(1000)}), "more than 65536 characters"),
    "too wide": (Params(json={"enum": list(range(100_000))}), "more than 65536 characters"),
    "a long text": (Params(json='"' + "x" * 70_000 + '"'), "json of .* has 70002 characters: 65536 are the most"),
    "many properties": (
        Params(json={"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1500)}}),
        "has an object with 1500 optional fields: 250 are the most",
    ),
    "many tables": (Params(json={"anyOf": [{"type": "integer"}] * 900}), "json of .* has 901 tables: 600"),
    "many symbols": (Params(grammar=" | ".join(["start: /ab/", *["/a+b/"] * 3000])), "cannot be compiled: .*size"),
    "joined patterns": (
        Params(json={"allOf": [{"type": "string", "pattern": f".*{i}.*{i}"} for i in range(15)]}),
        "joins 15 schemas by allOf and has 15 patterns",
    ),
    "joined alternatives": (
        Params(json={"allOf": [{"anyOf": [{"minLength": i} for i in range(4)]} for _ in range(5)]}),
        "allOf what has more than 256 cases by anyOf and oneOf",
    ),
    "joined in a grammar": (
        Params(grammar="start: " + " & ".join(f"/.*{i}.*/" for i in range(15))),
        "joins 14 patterns by &: 8",
    ),
    "a circle": (Params(json={"$ref": "#"}), "allows no text at all"),
    "no regex": (Params(regex="(a"), "regex of .* cannot be compiled: .*unclosed group"),
    "look-ahead": (Params(regex="(?=a)"), "regex of .* cannot be compiled: .*look-around"),
    "the empty text": (Params(regex=""), "allows the empty text alone"),
    "a long regex": (Params(regex="a" * 70_000), "regex of .* has 70000 characters"),
    "letters that no token spells": (Params(regex="x"), "allows no text at all"),
    "no rule": (Params(grammar="start: x"), "grammar of .* cannot be compiled: .*unknown name"),
    "bad GBNF": (Params(grammar='root ::= ("a"'), "taken for GBNF, and cannot be read"),
    "bad blanks": (Params(json={"type": "object"}, whitespace_pattern="("), "cannot be compiled"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_followed_is_refused(name):
    form, message = BAD[name]
    with pytest.raises(RequestError, match=message) as refused:
        begin(form)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)


def test_deep_schemas_are_refused():
    deep: dict = {}
    for _ in range(20_000):
        deep = {"items": deep}
    for form in (deep, '{"items":' * 5000 + "{}" + "}" * 5000):
        with pytest.raises(RequestError, match=r"levels deep|is no JSON"):
            begin(Params(json=form))


def test_gbnf_and_lark_say_the_same():
    gbnf, lark = Params(grammar='root ::= "a" tail*\ntail ::= "b" | "cc"'), Params(grammar='start: "a" ("b" | "cc")*')
    one, two = begin(gbnf), begin(lark)
    for token in (1, 2, 7, 3):
        assert one.allowed([]).equal(two.allowed([])) and told(one.allowed([]))
        one.advance(token)
        two.advance(token)


def test_blanks_between_the_parts_of_json():
    codec = TinyTokens(["<end>", *'{}[]":, \n\t01a'], end=0)
    make = partial(Grammars(codec, vocab_size=codec.vocab_size, ends={0}).constraint, ignore_eos=False)
    schema = {"type": "array", "items": {"type": "integer"}}

    def fits(text, **layout):
        form = make(Params(json=schema, **layout))()
        for token in codec.encode(text):
            if not form.allowed([])[token]:
                return False
            form.advance(token)
        return bool(form.allowed([])[0])

    forms = ("[0,1]", "[0, 1]", "[\n\t0,\n\t1\n]", "[0,  1]", "[\n\n0]")
    assert [fits(text) for text in forms] == [True, True, True, False, False]
    assert [fits(text, disable_any_whitespace=True) for text in forms] == [True, False, False, False, False]
    assert [fits(text, whitespace_pattern="[ \n\t]+") for text in forms] == [True] * 5


def test_a_mask_is_a_new_row_of_the_models_size():
    assert begin(Params(regex="a")).allowed([]).dtype == torch.bool
