"""REST over a small datastore: what it proposes, its budgets, and what it refuses."""

import pytest
from drafters.drafting import Reciter, make, sequence, write
from tokenizers import Tokenizer, decoders, models

from outdraft.codecs.text import TextCodec
from outdraft.core.policy import Budget
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.options.errors import ConfigError

DOCUMENTS = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [9, 2, 3, 4, 7], [8, 8, 8]]


class Port:
    """As much of a target as REST looks at."""

    vocab_size = 10
    codec = None


@pytest.fixture
def store(tmp_path):
    build_datastore(tmp_path / "store", DOCUMENTS, IdsOnly(vocab_size=10))
    return str(tmp_path / "store")


def guess(store, tokens, depth=10, nodes=None, **options):
    drafter = make("rest", Port(), datastore=store, **options)
    return drafter.propose([sequence(tokens)], [Budget(depth=depth, nodes=nodes)])[0]


def test_the_longest_match_decides_and_equal_beginnings_share_nodes(store):
    draft = guess(store, [0, 2, 3])  # seen three times: 4 5, 6, 4 7
    assert draft.tokens.tolist() == [3, 4, 6, 5, 7] and draft.parents.tolist() == [-1, 0, 0, 1, 1]
    assert guess(store, [9, 2, 3]).tokens.tolist() == [3, 4, 7]


def test_no_hit_is_a_plain_step(store):
    assert guess(store, [2]).num_nodes == 1
    assert guess(store, [7, 5]).num_nodes == 1
    assert guess(store, [4, 5], min_match=1).num_nodes == 1  # a document ends there


def test_budgets_keep_the_heaviest(store):
    assert guess(store, [2, 3], depth=0).num_nodes == 1
    assert guess(store, [2, 3], nodes=0).num_nodes == 1
    assert guess(store, [2, 3], depth=1).tokens.tolist() == [3, 4, 6]
    assert guess(store, [2, 3], nodes=1).tokens.tolist() == [3, 4]
    assert guess(store, [2, 3], **{"nodes": 3}).tokens.tolist() == [3, 4, 6, 5]


def test_ids_beyond_the_datastore_end_the_query(store):
    """10 is how the datastore writes the border between documents, which no text of the target's can match."""
    assert guess(store, [1, 10, 2, 3]).num_nodes == 5
    assert guess(store, [6, 10, 9]).num_nodes == 1  # "6 border 9" stands there, "9" alone is too short
    assert guess(store, [6, 10, 9], min_match=1).tokens.tolist() == [9, 2, 3, 4, 7]
    assert guess(store, [9, 2, 3, 10]).num_nodes == 1


def test_a_known_text_is_recited(store, tmp_path):
    text = [*range(1, 50)]
    build_datastore(tmp_path / "long", [text], IdsOnly(vocab_size=60))
    port = Port()
    port.vocab_size = 60
    run = write(
        [sequence(text[:3], max_tokens=40)],
        Reciter(text, 60),
        make("rest", port, datastore=str(tmp_path / "long")),
        k=10,
    )
    assert run.tokens_per_pass >= 8


def named_codec(words):
    """A tokenizer that knows these words."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.decoder = decoders.ByteLevel()
    return TextCodec(tokenizer)


def test_another_vocabulary_is_refused(store, tmp_path):
    port = Port()
    port.vocab_size = 9
    with pytest.raises(ConfigError, match="vocabulary of 10 tokens, the target has 9"):
        make("rest", port, datastore=store)
    build_datastore(tmp_path / "named", ["ab"], named_codec(["ab", "c"]))
    port.codec = named_codec(["c", "ab"])
    with pytest.raises(ConfigError, match="another tokenizer"):
        make("rest", port, datastore=str(tmp_path / "named"))
    port.codec = named_codec(["ab", "c"])
    make("rest", port, datastore=str(tmp_path / "named"))


def test_bad_options(store):
    with pytest.raises(ConfigError, match="outdraft datastore build"):
        make("rest", Port())
    for bad in ({"min_match": 0}, {"min_match": 17}, {"max_hits": 0}, {"nodes": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            make("rest", Port(), datastore=store, **bad)
