"""The core promise: a row's logits do not depend, in a single bit, on how many rows are in the pass."""

import random

import pytest
import torch

from outdraft.cache.static import StaticCache
from outdraft.models.networks.base import Decoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.testing.tiny import TINY_ARCHITECTURES
from tests.helpers.tiny_families import tiny_model

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
PROMPTS = ([5, 9, 2], list(range(1, 40)), [7])


def new_cache(model: Decoder) -> StaticCache:
    c = model.config
    return StaticCache(c.num_layers, c.num_kv_heads, c.head_dim, model.embedding.dtype, "cpu", c.max_len, poison=True)


def one_pass(model, cache, segments, tokens, positions):
    for segment in segments:
        cache.reserve(segment.seq, segment.base - cache.length(segment.seq) + segment.num_rows)
    return model(torch.tensor(tokens), torch.tensor(positions), CachedContext(cache, segments, exact=True))


def decode_on(model, cache, seq, tokens):
    """Logits after each of `tokens`, one row per pass: [n, V]; they stay in the cache."""
    rows = []
    for token in tokens:
        place = cache.length(seq)
        rows.append(one_pass(model, cache, [Segment(seq=seq, start=0, stop=1, base=place)], [token], [place]))
        cache.commit(seq, [0])
    cache.check()
    return torch.cat(rows)


def decode_alone(model, cache, seq, tokens):
    """The same, behind what the cache holds of the sequence, which is all that it holds afterwards."""
    length = cache.length(seq)
    rows = decode_on(model, cache, seq, tokens)
    cache.truncate(seq, length)
    return rows


def filled(model, prompts):
    cache = new_cache(model)
    for seq, prompt in enumerate(prompts):
        cache.add(seq)
        decode_on(model, cache, seq, prompt)
    return cache


CASES = [(a, d) for a in TINY_ARCHITECTURES for d in DTYPES]
CASES += [(a, "bfloat16") for a in ("gemma2", "olmo3", "cohere2", "ministral3")]  # caps, norms, scales, growth


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def model(request):
    architecture, dtype = request.param
    return tiny_model(architecture, dtype=DTYPES[dtype])


def test_a_chain_has_the_bits_of_decoding_one_by_one(model):
    tokens = torch.randint(61, (33,), generator=torch.Generator().manual_seed(1)).tolist()
    cache = filled(model, PROMPTS)
    alone = [decode_alone(model, cache, seq, tokens) for seq in range(len(PROMPTS))]
    for n in (1, 2, 3, 5, 8, 9, 16, 17, 32, 33):
        segments, ids, places = [], [], []
        for seq, prompt in enumerate(PROMPTS):  # the three sequences have n, n/2 and 1 rows
            count = (n, n // 2 + 1, 1)[seq]
            segments.append(Segment(seq=seq, start=len(ids), stop=len(ids) + count, base=len(prompt)))
            ids += tokens[:count]
            places += range(len(prompt), len(prompt) + count)
        logits = one_pass(model, cache, segments, ids, places)
        for seq, segment in enumerate(segments):
            assert torch.equal(logits[segment.start : segment.stop], alone[seq][: segment.num_rows]), (n, seq)
            cache.commit(seq, [])


def random_tree(rng, n):
    return tuple([-1] + [rng.randrange(i) for i in range(1, n)])


def path_of(parents, node):
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[::-1]


def test_every_path_of_a_tree_has_the_bits_of_decoding_it_alone(model):
    cache = filled(model, PROMPTS[:2])
    for n in (2, 7, 12, 33):
        trees_have_the_bits_of_their_paths(model, cache, n)


def trees_have_the_bits_of_their_paths(model, cache, n):
    rng = random.Random(n)
    trees = [random_tree(rng, n), random_tree(rng, max(2, n // 2))]
    prompts = PROMPTS[:2]
    segments, ids, places = [], [], []
    for seq, parents in enumerate(trees):
        start, base = len(ids), len(prompts[seq])
        segments.append(Segment(seq=seq, start=start, stop=start + len(parents), base=base, parents=parents))
        ids += [rng.randrange(61) for _ in parents]
        places += [base + len(path_of(parents, node)) - 1 for node in range(len(parents))]
    logits = one_pass(model, cache, segments, ids, places)
    for seq, (segment, parents) in enumerate(zip(segments, trees, strict=True)):
        own = ids[segment.start : segment.stop]
        cache.commit(seq, [])
        for node in rng.sample(range(len(parents)), min(6, len(parents))):
            path = path_of(parents, node)
            alone = decode_alone(model, cache, seq, [own[i] for i in path])
            assert torch.equal(logits[segment.start + node], alone[-1]), (n, seq, node)


def test_a_committed_path_leaves_the_cache_of_plain_decoding(model):
    rng = random.Random(3)
    parents = (-1, 0, 0, 1, 2, 4, 4, 6)
    tokens = [rng.randrange(61) for _ in parents]
    path = [0, 2, 4, 6, 7]
    prompt = PROMPTS[1]
    cache = filled(model, [prompt])
    places = [len(prompt) + len(path_of(parents, i)) - 1 for i in range(len(parents))]
    one_pass(model, cache, [Segment(seq=0, start=0, stop=8, base=len(prompt), parents=parents)], tokens, places)
    cache.commit(0, path)
    cache.check()
    plain = filled(model, [prompt + [tokens[i] for i in path]])
    length = len(prompt) + len(path)
    assert cache.length(0) == plain.length(0) == length
    for layer in range(model.config.num_layers):
        for ours, theirs in zip(cache.read(0, layer, length), plain.read(0, layer, length), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_long_prompt_chunk_does_not_change_with_what_stands_beside_it(dtype):
    model = tiny_model(dtype=dtype)
    prompt = torch.randint(61, (100,), generator=torch.Generator().manual_seed(2)).tolist()

    def run(extra, others):
        cache = filled(model, [[3, 1]] * others)
        segments = [Segment(seq=seq, start=seq, stop=seq + 1, base=2) for seq in range(others)]
        cache.add(9)
        ids = [4] * others + prompt + [8] * extra
        segments.append(Segment(seq=9, start=others, stop=len(ids), base=0, bulk=len(prompt)))
        places = [2] * others + list(range(len(prompt) + extra))
        return one_pass(model, cache, segments, ids, places)[others:]

    alone = run(1, 0)
    for extra, others in ((1, 3), (5, 0), (9, 2)):
        assert torch.equal(run(extra, others)[:101], alone)
