"""What cannot be written is one error before any work; texts in settings become token ids where prompts are read."""

from dataclasses import replace

import pytest
import torch

from outdraft import LLM
from outdraft.core.request import Request
from outdraft.engine.requests.spelled import spell_settings
from outdraft.engine.requests.writable import make_constraint, require_known_tokens, require_writable
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams

VOCAB, ENDS = 10, frozenset({0})


def check(room=50, **settings):
    request = Request(prompt_token_ids=(1,), params=SamplingParams(**settings))
    require_known_tokens(request, VOCAB)
    require_writable(request, ENDS, VOCAB, room=room)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"banned_token_ids": [3, 10]}, "banned_token_ids names token 10, outside the vocabulary of 10"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids names token -1"),
        ({"bad_words": [[3, 99]]}, "bad_words names token 99"),
        ({"forced_prefix": [3, 11]}, "forced_prefix names token 11"),
        ({"bad_words": ["x"]}, "bad_words='x' needs a tokenizer"),
        ({"forced_prefix": "x"}, "forced_prefix='x' needs a tokenizer"),
        ({"banned_token_ids": list(range(10))}, "banned_token_ids forbids all 10 tokens"),
        (
            {"allowed_token_ids": [3, 4], "banned_token_ids": [3], "logit_bias": {4: -torch.inf}},
            "logit_bias and allowed_token_ids and banned_token_ids together forbid all 10",
        ),
        ({"allowed_token_ids": [3], "bad_words": [[3]]}, "allowed_token_ids and bad_words together forbid"),
        ({"allowed_token_ids": [0, 5], "stop_token_ids": [5], "min_tokens": 2}, "min_tokens=2 forbids every token"),
        ({"forced_prefix": [3, 4], "banned_token_ids": [4]}, r"token 4, which may not be written \(banned_token_ids\)"),
        ({"forced_prefix": [3, 4], "allowed_token_ids": [3]}, r"token 4, which may not be written \(allowed_token_ids"),
        ({"forced_prefix": [3, 4, 5], "bad_words": [[4, 5]]}, r"contains the tokens \[4, 5\] of bad_words"),
        ({"forced_prefix": [3, 0, 5]}, "goes on after token 0, which ends the text"),
        ({"forced_prefix": [3, 6, 5], "stop_token_ids": [6]}, "goes on after token 6"),
        ({"forced_prefix": [3, 0], "min_tokens": 2}, "has token 0, which ends a text, before min_tokens=2"),
        ({"forced_prefix": [3] * 7, "room": 6}, "forced_prefix has 7 tokens, and the answer at most 6"),
    ],
)
def test_what_cannot_be_written_is_named(given, said):
    with pytest.raises(RequestError, match=said):
        check(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"allowed_token_ids": [0, 5], "stop_token_ids": [5]},
        {"allowed_token_ids": [0, 5], "min_tokens": 2},
        {"allowed_token_ids": [3], "min_tokens": 2, "banned_token_ids": [4]},
        {"forced_prefix": [3, 0]},
        {"forced_prefix": [3, 0, 4], "ignore_eos": True},
        {"forced_prefix": [3] * 6, "room": 6},
        {"forced_prefix": [5, 4], "bad_words": [[4, 5], [3]], "allowed_token_ids": [4, 5]},
        {"banned_token_ids": list(range(9))},
    ],
)
def test_what_can_be_written_is_let_through(given):
    check(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"typical_p": 0.0}, "typical_p=0.0 is out of range: it must be above 0"),
        ({"typical_p": 1.5}, "typical_p=1.5 is out of range"),
        ({"bad_words": [""]}, "bad_words=.*non-empty"),
        ({"bad_words": [[]]}, "bad_words=.*non-empty"),
        ({"bad_words": [3]}, "bad_words=.* must be a list"),
        ({"allowed_token_ids": []}, r"allowed_token_ids=\(\) is out of range: it must be at least one"),
        ({"forced_prefix": [1, 2, 3], "max_tokens": 2}, "forced_prefix has 3 tokens, more than max_tokens=2"),
        ({"suppress_tokens": [3]}, "here it is called banned_token_ids"),
    ],
)
def test_settings_are_checked_when_they_are_made(given, said):
    with pytest.raises(RequestError, match=said):
        SamplingParams(**given)


def test_a_single_word_and_lists_are_as_for_stop():
    assert SamplingParams(bad_words="no").bad_words == ("no",)
    made = SamplingParams(bad_words=[[1, 2], "no"], allowed_token_ids=[4], forced_prefix=torch.tensor([1, 2]))
    assert (made.bad_words, made.allowed_token_ids, made.forced_prefix) == (((1, 2), "no"), (4,), (1, 2))
    assert replace(made, seed=3).bad_words == made.bad_words


def test_the_constraint_may_not_forbid_the_prefix():
    class Only:
        def __init__(self, *tokens):
            self.tokens = tokens

        def advance(self, token):
            pass

        def allowed(self, path):
            return torch.arange(VOCAB) == self.tokens[len(path)]

    request = Request(prompt_token_ids=(1,), params=SamplingParams(forced_prefix=[4, 5]))
    make_constraint(replace(request, constraint=lambda: Only(4, 5)), VOCAB)
    with pytest.raises(RequestError, match="forced_prefix has token 5 at 1, which the constraint forbids there"):
        make_constraint(replace(request, constraint=lambda: Only(4, 6)), VOCAB)


@pytest.mark.parametrize("speculative", [None, 0])
def test_a_forced_prefix_is_drafted_for_free(speculative):
    """Twelve tokens in two passes, whatever the drafter knows; plain decoding takes a pass for each."""
    llm = LLM("zoo:target", drafter="ngram", num_speculative_tokens=2)
    settings = SamplingParams(max_tokens=12, forced_prefix=list(range(300, 312)))
    result = llm.generate({"prompt_token_ids": [5, 6, 7]}, settings, num_speculative_tokens=speculative)
    assert result.token_ids == tuple(range(300, 312))
    assert result.stats.num_steps == (2 if speculative is None else 12)


class Words:
    """A codec of one token a letter; as some do, it begins a text alone with a space."""

    encodes = str

    def __init__(self, *, adds_space):
        self.adds_space = adds_space

    def encode(self, text, *, add_special=True):
        return [ord(c) for c in (" " if self.adds_space else "") + text]

    def decode(self, ids, *, continues=False):
        return "".join(map(chr, ids))


@pytest.mark.parametrize("adds_space", [True, False])
def test_texts_are_spelled_as_they_stand_behind_other_text(adds_space):
    params = SamplingParams(bad_words=["ab", [7], "  ab", " "], forced_prefix="Hi", max_tokens=9)
    made = spell_settings(params, Words(adds_space=adds_space), "m")
    spell = lambda text: tuple(map(ord, text))  # noqa: E731
    assert made.bad_words == (spell("ab"), spell(" ab"), (7,), spell(" ")) and made.forced_prefix == spell("Hi")


def test_a_word_that_reads_otherwise_behind_a_line_is_spelled_as_it_stands_alone():
    class Capital(Words):
        """Begins every line with a capital letter, and every text with a space."""

        def encode(self, text, *, add_special=True):
            return super().encode(text[:1] + text[1:].capitalize() if text[:1] == "\n" else text)

    made = spell_settings(SamplingParams(bad_words=["ab"]), Capital(adds_space=True), "m")
    assert made.bad_words[0] == tuple(map(ord, " ab")) and made.prefix_ids == ()


def test_a_prefix_that_has_no_spelling_is_refused():
    class Deaf(Words):
        def decode(self, ids, *, continues=False):
            return "?"

    with pytest.raises(RequestError, match=r"forced_prefix='Hi' cannot be spelled by the tokenizer of m, .* '\?'"):
        spell_settings(SamplingParams(forced_prefix="Hi"), Deaf(adds_space=False), "m")
    with pytest.raises(RequestError, match="bad_words='a' needs a tokenizer, and m has none"):
        spell_settings(SamplingParams(bad_words="a"), None, "m")
    plain = SamplingParams(bad_words=[[3]], forced_prefix=[4])
    assert spell_settings(plain, None, "m") is plain
    assert spell_settings(SamplingParams(forced_prefix=""), None, "m") == SamplingParams()


def test_the_public_way_reads_texts():
    llm = LLM("zoo:target", drafter="ngram", num_speculative_tokens=3)
    prompt = "It was late in the evening when the letter came. She opened it and"
    (letter,) = llm.generate([prompt], SamplingParams(max_tokens=12, forced_prefix=" the letter, the"))
    assert letter.text.startswith(" the letter, the") and len(letter.token_ids) == 12
    open_ = llm.generate(prompt, SamplingParams(max_tokens=12)).text
    word = open_.split()[0]
    assert word not in llm.generate(prompt, SamplingParams(max_tokens=12, bad_words=[word])).text
    with pytest.raises(RequestError, match="forced_prefix has token"):
        llm.generate(prompt, SamplingParams(forced_prefix=" the", bad_words=["the"]))


def test_what_is_never_written_is_found_once(monkeypatch):
    """And not for each token of a forced prefix: both may be long."""
    calls = []
    monkeypatch.setattr(
        "outdraft.engine.requests.writable.never_written",
        lambda params: calls.append(params) or {*params.banned_token_ids},
    )
    check(forced_prefix=[3, 4, 5] * 9, banned_token_ids=[6], bad_words=[[5, 4]], stop_token_ids=[7])
    assert len(calls) == 1
