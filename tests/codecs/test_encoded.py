"""Long texts are read in a way that leaves Python to other threads, and are read as short ones are."""

import pytest

from outdraft.codecs.encoded import encoded
from outdraft.models.files.load_codec import load_codec
from outdraft.weights.hub import resolve

TEXTS = ["", "a", "It was late when the <|end|> \U0001f600 door opened.\n\n  " * 400, "x" * 5000]


@pytest.fixture(scope="module")
def tokenizer():
    return load_codec(resolve("zoo:target"))._tokenizer


@pytest.mark.parametrize("text", TEXTS, ids=["empty", "short", "long", "one word"])
@pytest.mark.parametrize("add_special", [False, True])
def test_ids_and_places_are_the_tokenizers(tokenizer, text, add_special):
    expected = tokenizer.encode(text, add_special_tokens=add_special)
    read = encoded(tokenizer, text, add_special=add_special)
    assert read.ids == expected.ids and read.special_tokens_mask == expected.special_tokens_mask
    assert encoded(tokenizer, text, add_special=add_special, with_offsets=True).offsets == expected.offsets


class Batches:
    """A tokenizer whose batches alone are asked."""

    def encode(self, text, **settings):
        raise AssertionError("this keeps Python's lock")

    def encode_batch(self, texts, **settings):
        return [("with offsets", texts, settings)]

    def encode_batch_fast(self, texts, **settings):
        return [("fast", texts, settings)]


def test_long_texts_are_read_as_batches_which_leave_python_to_other_threads():
    text, settings = "x" * 5000, {"add_special_tokens": True}
    assert encoded(Batches(), text, add_special=True) == ("fast", [text], settings)
    assert encoded(Batches(), text, add_special=True, with_offsets=True) == ("with offsets", [text], settings)
