"""CS Drafting: who writes how much, lenient reviews, memories in step, and what a cascade costs."""

import pytest
import torch
from drafters.drafting import Reciter, sequence, write
from drafters.test_draft_model import DECODER, DecoderTarget, fresh_logits, small_decoder

from outdraft.core.drafter import forget
from outdraft.core.policy import Budget
from outdraft.drafters.cascade import METHOD, Bigrams, CascadeDrafter, CascadeOptions
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.drafters.shared.look_up.datastore.file import open_datastore
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.options.errors import ConfigError

V = 23


class Table:
    """A model that knows a text by heart, up to errors at some places; it counts its passes."""

    max_len = 4096
    decoder = DECODER  # what its weights are said to be

    def __init__(self, text, wrong=()):
        self.text, self.wrong, self.passes = text, set(wrong), 0

    def add(self, seq): ...

    def free(self, seq): ...

    def review(self, texts, counts):
        self.passes += 1
        pairs = zip(texts, counts, strict=True)
        return [torch.stack([self.after(len(t.tokens) - n + i + 1) for i in range(n)]) for t, n in pairs]

    def after(self, place):
        logits = torch.zeros(V)
        right = self.text[place] if place < len(self.text) else 0
        logits[(right + 1) % V if place in self.wrong else right] = 6.0
        return logits


TEXT = [i * i % 19 + 1 for i in range(300)]  # period 19: the base finds it


def cascade(models, lengths, leniency=1.0):
    return CascadeDrafter(models, lengths, leniency)


def guess(made, seq, depth=40):
    made.begin([seq])
    return made.propose([seq], [Budget(depth=depth)])[0].tokens[1:].tolist()


def test_each_level_writes_what_its_row_says():
    for lengths, count in ((((3, 0), (0, 0)), 3), (((0, 5), (0, 0)), 5), (((3, 4), (0, 0)), 7), (((0, 0), (0, 0)), 0)):
        tokens = guess(cascade([Table(TEXT)], lengths), sequence(TEXT[:60]))
        assert tokens == TEXT[60 : 60 + count], lengths


def test_a_model_that_is_helped_takes_fewer_passes_and_writes_the_same():
    alone, helped = Table(TEXT), Table(TEXT)
    assert guess(cascade([alone], ((12, 0), (0, 0))), sequence(TEXT[:60])) == TEXT[60:72]
    written = guess(cascade([helped], ((12, 0), (0, 5))), sequence(TEXT[:60]))
    assert written[:12] == TEXT[60:72]
    assert alone.passes == 12 and helped.passes == 2  # 5 copied and one more, twice


def test_a_review_stops_at_what_the_larger_one_would_not_write():
    small, large = Table(TEXT, wrong={62}), Table(TEXT)
    tokens = guess(cascade([large, small], ((6, 0, 0), (0, 4, 0), (0, 0, 0))), sequence(TEXT[:60]))
    assert tokens[:6] == TEXT[60:66]


def test_leniency_keeps_what_is_not_too_improbable():
    class Torn(Table):
        def after(self, place):
            logits = super().after(place)
            logits[2] = 5.5  # nearly as probable as the right one
            return logits

    class Stubborn(Table):
        def after(self, place):
            return torch.zeros(V).index_fill(0, torch.tensor(2), 9.0)

    lengths = ((4, 0, 0), (0, 3, 0), (0, 0, 0))
    strict = guess(cascade([Torn(TEXT), Stubborn(TEXT)], lengths, 1.0), sequence(TEXT[:60]))
    lenient = guess(cascade([Torn(TEXT), Stubborn(TEXT)], lengths, 4.0), sequence(TEXT[:60]))
    assert strict[:4] == TEXT[60:64] and lenient[:3] == [2, 2, 2]


def test_leniency_1_keeps_the_best_token_alone():
    """The larger model gives token 2 more probability than the smaller one that wrote it, and prefers another."""

    class Torn(Table):
        def after(self, place):
            return torch.zeros(V).index_fill(0, torch.tensor([2]), 5.9).index_fill(0, torch.tensor([3]), 6.0)

    class Vague(Table):
        def after(self, place):
            return torch.zeros(V).index_fill(0, torch.tensor(2), 0.5)

    lengths = ((4, 0, 0), (0, 3, 0), (0, 0, 0))
    assert guess(cascade([Torn(TEXT), Vague(TEXT)], lengths, 1.0), sequence(TEXT[:60])) == [3] * 4
    assert guess(cascade([Torn(TEXT), Vague(TEXT)], lengths, 1.01), sequence(TEXT[:60])) == [2, 2, 2, 3]


def test_a_review_may_bring_more_than_was_wanted():
    made = cascade([Table(TEXT)], ((2, 3), (0, 5)))
    assert guess(made, sequence(TEXT[:60])) == TEXT[60:66], "one review: 5 that the base copied, and one more"


def test_the_cascade_costs_less_than_either_drafter_alone():
    """Target 1, large drafter 0.25, small one 0.02, the base nothing; the small one errs at every fourth place."""
    costs, results = (0.25, 0.02), {}
    errors = (range(0, 300, 29), range(0, 300, 4))
    fresh = [7 * i % 22 for i in range(300)]  # nothing to copy at first
    shapes = {
        "large": ([0], ((6, 0), (0, 0))),
        "small": ([1], ((6, 0), (0, 0))),
        "cascade": ([0, 1], ((4, 2, 0), (0, 3, 3), (0, 0, 3))),
    }
    for name, (which, lengths) in shapes.items():
        models = [Table(fresh, errors[i]) for i in which]
        run = write([sequence(fresh[:10], max_tokens=200)], Reciter(fresh, V), cascade(models, lengths), k=6)
        results[name] = run.passes + sum(costs[i] * model.passes for i, model in zip(which, models, strict=True))
    assert results["cascade"] < min(results["large"], results["small"]), results


BASE_ALONE = ((0, 5), (0, 0))


def test_where_the_text_has_no_match_the_base_writes_by_bigrams():
    """First the longest match; else the commonest successor, one token, and then the text is looked at again."""
    made = cascade([Table(TEXT)], BASE_ALONE)
    for times in (2, 1):  # 7 is followed by 8 twice, by 9 once
        for _ in range(times):
            made.bigrams.of(sequence([1])).learn([7, 7 + (3 - times)])
    made.bigrams.of(sequence([1])).learn([8, 3])
    assert guess(made, sequence([1, 2, 3, 4, 5, 6, 7])) == [8, 3, 4, 5, 6], "two bigrams, then 3 is found in the text"
    assert (made.num_bigrams, made.num_copied) == (2, 3)
    assert guess(made, sequence([1, 2, 3, 4, 3])) == [4, 3, 4, 3, 4]
    assert made.num_bigrams == 2, "a text that is found in itself needs none"


def test_bigrams_are_those_of_earlier_texts_until_it_forgets():
    made = cascade([Table(TEXT)], BASE_ALONE)
    assert guess(made, sequence([1, 2, 3])) == [] and made.num_bigrams == 0
    assert guess(made, sequence([9, 8, 1])) == [2, 3] and made.num_bigrams == 2
    forget(made)
    assert guess(made, sequence([9, 8, 1])) == [] and made.num_bigrams == 2


def test_bigrams_of_a_datastore(tmp_path):
    """Counted on its texts, ends of documents left out; what the engine reads changes nothing."""
    build_datastore(tmp_path / "store", [[1, 2, 1, 3, 1, 3, 5], [4]], IdsOnly(vocab_size=V))
    store = open_datastore(tmp_path / "store")
    table = Bigrams(store)
    table.learn([1, 2] * 9)
    assert [table.after(token) for token in (1, 2, 3, 4, 5, V - 1)] == [3, 1, 1, None, None, None]
    made = CascadeDrafter([Table(TEXT)], BASE_ALONE, 1.0, store)
    assert guess(made, sequence([9, 2])) == [1, 3, 1, 3, 1] and made.num_bigrams == 5


def test_a_datastore_that_changes_while_it_is_open_is_named(tmp_path):
    path = tmp_path / "store"
    build_datastore(path, [[1, 2, 1, 3, 1, 3, 5], [4]], IdsOnly(vocab_size=V))
    table = Bigrams(open_datastore(path))
    with path.open("r+b") as file:
        file.seek(-36, 2)
        file.write(b"\xff" * 36)
    with pytest.raises(ConfigError, match="store was changed while it was open"):
        for token in range(6):
            table.after(token)


def test_the_weights_of_every_level_are_given():
    made = cascade([Table(TEXT), DraftModel(SMALL)], ((1, 1, 1),) * 3)
    assert [weights.pass_bytes for weights in made.traits.weights] == [DECODER.pass_bytes, SMALL.pass_bytes]
    assert len(METHOD.describe(made)["levels"]) == 2


def test_what_is_counted_while_decoding_is_bounded_and_keeps_what_comes_often():
    table = Bigrams()
    for i in range(1000):
        table.learn([0, 1 + i % 50])
        table.learn([0, 77])
    assert table.after(0) == 77 and len(table._counts[0]) <= 8


def test_where_a_ninth_successor_comes_all_lose_a_count():
    """Those that had but one are gone; what has more stays, and may be overtaken."""
    table = Bigrams()
    for follower in (3, 9, 9, 9, 9, 1, 2, 4, 5, 6, 7):
        table.learn([0, follower])
    assert table.after(0) == 9, "the commonest one, not the first"
    table.learn([0, 8])
    assert table._counts[0] == {9: 3}
    for follower in (5, 5, 5, 5):
        table.learn([0, follower])
    assert table.after(0) == 5


def test_the_base_alone_writes_behind_a_text_of_any_length():
    assert guess(cascade([], ((4,),)), sequence(TEXT[:200])) == TEXT[200:204]


SMALL = small_decoder(seed=9)


@pytest.mark.parametrize("leniency", [1.0, 3.0])
def test_memories_stay_in_step_with_the_text(leniency):
    """Every logit that a level reviews by is that of a fresh forward, whatever was taken back before."""
    models = [DraftModel(DECODER), DraftModel(SMALL)]
    for model, decoder in zip(models, (DECODER, SMALL), strict=True):
        model._cache.rows.poison = True
        model.review = audited(model.review, decoder)
    made = cascade(models, ((3, 2, 2), (0, 2, 2), (0, 0, 2)), leniency)
    seqs = [sequence(p, max_tokens=14) for p in ([1, 2, 3, 1, 2], [4], [5, 6, 5, 6, 5])]
    write(seqs, DecoderTarget(DECODER, 0.4), made, k=7)
    assert all(model.is_empty for model in models)


def audited(review, decoder):
    def check(texts, counts):
        found = review(texts, counts)
        for text, count, logits in zip(texts, counts, found, strict=True):
            for i in range(count):
                prefix = text.tokens[: len(text.tokens) - count + i + 1]
                assert torch.allclose(logits[i], fresh_logits(prefix, decoder), atol=1e-9)
        return found

    return check


@pytest.mark.parametrize("bad", [{"lengths": ((1,),)}, {"lengths": ((1, -1), (0, 0))}, {"leniency": 0.5}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        CascadeOptions(**bad)
