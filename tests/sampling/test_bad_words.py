"""Bad words are found at the cost of the longest match, and as each of them alone would be."""

import random

from outdraft.core.request import Request
from outdraft.options.params import SamplingParams
from outdraft.sampling.masks import BadWords, bad_words


def naive(words, text):
    return {word[-1] for word in words if len(word) > 1 and tuple(text[len(text) + 1 - len(word) :]) == word[:-1]}


def test_as_each_word_alone_would_be():
    r = random.Random(5)
    for _ in range(300):
        words = {tuple(r.randrange(3) for _ in range(r.randrange(1, 6))) for _ in range(r.randrange(1, 12))}
        text = [r.randrange(3) for _ in range(r.randrange(0, 8))]
        longest = {word for word in words if len(word) <= len(text) + 1}
        assert set(BadWords(words).after(reversed(text))) == naive(longest, text)


def test_only_as_much_of_a_text_is_read_as_a_word_may_reach():
    read = []
    words = BadWords([(1, 2, 3), (9, 2, 4), *((7, i) for i in range(10, 1000))])
    assert words.after(read.append(token) or token for token in [2, 1, 5, 5, 5]) == [3]
    assert read == [2, 1, 5]


def test_the_texts_of_a_request_share_them():
    params = SamplingParams(n=3, temperature=1.0, bad_words=[(1, 2)])
    first, *others = Request(prompt_token_ids=(1,), params=params).singles()
    assert all(bad_words(one) is bad_words(first) for one in others)
