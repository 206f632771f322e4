"""A text's least number of tokens, by its length, is never more than it has, and is enough to refuse what is absurd."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.codecs.text import TextCodec
from outdraft.codecs.tokenizer_file import spells_all
from outdraft.server.reading import fewest_tokens
from outdraft.weights.hub import resolve

CODEC = TextCodec.load(resolve("zoo:target"))
DESCRIBED = json.loads(CODEC._tokenizer.to_str())


@given(st.text(max_size=400), st.integers(1, 60))
def test_no_text_has_fewer(text: str, times: int) -> None:
    whole = text.encode("utf-8", "ignore").decode() * times
    assert fewest_tokens(len(whole), CODEC.longest_token) <= len(CODEC.encode(whole, add_special=False))


def test_the_longest_token_repeated_is_above_the_bound() -> None:
    longest = max((CODEC.token_bytes(i) for i in range(CODEC.num_ids)), key=len)
    text = longest.decode() * 500
    assert CODEC.longest_token == len(longest)
    assert 0 < fewest_tokens(len(text), CODEC.longest_token) <= len(CODEC.encode(text, add_special=False))


@pytest.mark.parametrize(
    ("change", "spells"),
    [
        ({}, True),
        ({"normalizer": {"type": "NFC"}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"}}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}}, False),
        ({"normalizer": {"type": "Lowercase"}}, False),
        ({"pre_tokenizer": None}, False),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}]}}, False),
        ({"model": {"type": "WordPiece", "unk_token": "[UNK]"}}, False),
        ({"added_tokens": [{"content": "<mask>", "lstrip": True}]}, False),
    ],
)
def test_what_may_leave_text_out_has_no_bound(change: dict[str, object], spells: bool) -> None:
    assert spells_all({**DESCRIBED, **change}) is spells
