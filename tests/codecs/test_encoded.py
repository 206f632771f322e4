"""Long texts are read in a way that leaves Python to other threads, and are read as short ones are."""

from threading import Event, Thread

import pytest
from tokenizers import Tokenizer

from outdraft.codecs.encoded import encoded
from outdraft.models.load_codec import load_codec
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


def test_other_threads_run_while_a_long_text_is_read(tokenizer):
    """The other thread counts in small pieces of Python; beside `Tokenizer.encode` it would not get to one."""
    counted, ended = [0], Event()

    def count():
        while not ended.is_set():
            counted[0] += 1

    thread = Thread(target=count)
    text = TEXTS[2] * 40
    thread.start()
    try:
        before = counted[0]
        encoded(tokenizer, text, add_special=False)
        beside = counted[0] - before
        before = counted[0]
        Tokenizer.encode(tokenizer, text)
        kept_out = counted[0] - before
    finally:
        ended.set()
        thread.join()
    assert beside > 10 * (kept_out + 100)
