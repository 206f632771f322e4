"""Two vocabularies: the same bytes whatever the tokens, ends encoded again, half characters and spaces held back."""

import random

import pytest
from contracts.sides import toy_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers

from outdraft.codecs.text import TextCodec
from outdraft.drafters.shared.networks.retokenize import Retokenized, encode_end, spell, whole_characters
from tests.helpers.byte_codec import ByteCodec

WORDS = "once upon a time there was one tiny mouse who went to the sea".split()


def marked(merges):
    """A tokenizer that puts a space before a text, with raw bytes for what it does not know."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefghijklmnopqrstuvwxyz"]
    names += [left + right for left, right in merges]
    vocab = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return TextCodec(tokenizer)


SPACED = marked([("\u2581", "t"), ("\u2581t", "h"), ("\u2581th", "e"), ("o", "n"), ("\u2581", "a"), ("s", "e")])
OTHER = marked([("t", "h"), ("e", "\u2581"), ("\u2581", "s"), ("a", "\u2581"), ("i", "n"), ("th", "e")])
CODECS = [SPACED, OTHER, ByteCodec()]


@pytest.mark.parametrize("codec", CODECS, ids=["spaced", "other", "bytes"])
def test_ends_spell_exactly_the_text(codec):
    for text in (" the sea", "the sea", "n the", " ", "  a", "e ", "caf\u00e9 t", "\nthe", "\u2603"):
        ids = encode_end(codec, text)
        assert ids is not None and spell(codec, ids) == text.encode(), text


def test_whole_characters():
    snow = "a\u2603".encode()
    assert [whole_characters(snow[:n]) for n in range(5)] == ["", "a", "a", "a", "a\u2603"]


@pytest.mark.parametrize("draft", CODECS, ids=["spaced", "other", "bytes"])
@pytest.mark.parametrize("hold", [False, True])
def test_growing_texts_are_spelled_in_the_other_vocabulary(draft, hold):
    rng = random.Random(3)
    for target in CODECS:
        text = Retokenized(target, draft, hold_spaces=hold)
        tokens = target.encode("once upon")
        for _ in range(60):
            word = rng.choice([*WORDS, "caf\u00e9", "\u2603"])
            for token in encode_end(target, rng.choice(["", " "]) + word):
                tokens.append(token)
                text.update(tokens)
                whole = target.decode(tokens).encode()
                complete = spell(target, tokens).decode("utf-8", "replace").endswith("\ufffd") is False
                assert text.is_whole == complete
                if text.is_whole:
                    spelled = draft.decode(text.ids).encode() + b" " * text.held
                    assert spelled == whole
                    assert not hold or not draft.decode(text.ids).endswith(" ")


def test_what_stands_far_from_the_end_keeps_its_ids():
    text = Retokenized(SPACED, OTHER)
    tokens = SPACED.encode(" ".join(WORDS * 4))
    text.update(tokens)
    before = list(text.ids)
    for token in encode_end(SPACED, " the sea"):
        tokens.append(token)
        text.update(tokens)
    assert text.ids[: len(before) - 26] == before[: len(before) - 26]


def test_characters_that_the_other_vocabulary_lacks_do_not_stop_it():
    target, draft = ByteCodec(), TextCodec(toy_tokenizer(20, seed=2))
    text, tokens = Retokenized(target, draft), []
    for byte in b"abcXYZabc" + b"abcd" * 12:
        tokens.append(byte)
        text.update(tokens)
        assert text.is_whole
        known = bytes(token for token in tokens if token not in b"XYZ")
        assert spell(draft, text.ids) == known, "every letter that both have, once"
    assert spell(draft, text.ids[-5:]).endswith(b"abcdabcd")
