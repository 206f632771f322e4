"""EAGLE: pairs of true features, drafted rows dropped, the tree equals a fresh forward of every path."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from drafters.drafting import best_children, door, sequence, write

from outdraft.core.draft import host_tree
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.drafters.eagle import EagleOptions
from outdraft.drafters.eagle.learn import LEARN, EagleLearning
from outdraft.drafters.eagle.net import EagleConfig, EagleNet
from outdraft.drafters.shared.features.drafter import FeatureDrafter
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.models.networks.config import llama_config
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import tiny_model
from tests.helpers.table_target import TableTarget

V, D = 13, 13


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


class TinyNet:
    """One attention layer over [embedding, feature], with a position signal; random, so no tree is like another."""

    def __init__(self):
        generator = torch.Generator().manual_seed(4)
        layers = {"num_layers": 1, "num_heads": 1, "head_dim": 8, "intermediate_size": 1, "max_len": 256}
        self.taps, self.shape = (1, 2), llama_config(vocab_size=V, hidden_size=D, **layers)
        self.embed = self.vocab = None
        self.mix, self.qkv, self.out, self.head = (
            torch.randn(shape, generator=generator, dtype=torch.float64) * 0.5
            for shape in ((2 * D, D), (D, 24), (8, D), (D, V))
        )
        self.num_rows = 0

    def fuse(self, taps):
        return taps[0] + 0.5 * taps[1]

    def run(self, embeds, features, positions, ctx):
        self.num_rows += len(embeds)
        x = torch.cat([embeds, features], -1) @ self.mix + torch.sin(positions[:, None] * torch.arange(1, D + 1) * 0.1)
        q, k, v = (x @ self.qkv).unflatten(1, (3, 1, 8)).unbind(1)
        return torch.tanh(x + ctx.attend(0, q, k, v, window=None, scale=8**-0.5) @ self.out)

    def carry(self, outputs):
        return outputs

    def logits(self, outputs):
        return 2 * outputs @ self.head


NET = TinyNet()
TABLE = torch.randn(V, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
PORT = SimpleNamespace(
    embed=lambda ids, positions: TABLE[ids],
    vocab_size=V,
    hidden_size=D,
    device=torch.device("cpu"),
    dtype=torch.float64,
    max_len=256,
)
TARGET = TableTarget(vocab_size=V, order=1, sharpness=1.0)


def drafter(**options):
    return FeatureDrafter(EagleOptions(**options), Pairs(NET, door(PORT)))


def fresh_logits(tokens, path, first=0):
    """What the net says after `path`, from nothing: true features (the table target's one-hot taps), then its own."""
    true = torch.nn.functional.one_hot(torch.tensor(tokens[first:-1]), V).double() * 1.5
    features = list(true)
    for i in range(len(path) + 1):
        follow = torch.tensor([*tokens[first + 1 :], *path[:i]])
        n = len(follow)
        outputs = NET.run(TABLE[follow], torch.stack(features), first + torch.arange(n), CausalContext(1, n))
        features.append(outputs[-1])
    return NET.logits(outputs[-1])


def audit(made, params=None):
    propose = made.propose

    def audited(seqs, budgets):
        drafts = propose(seqs, budgets)
        for seq, draft, budget in zip(seqs, drafts, budgets, strict=True):
            assert (draft.num_nodes > 1) == (min(budget.depth, len(seq.tokens) - 1) > 0)
            tree = host_tree(draft)
            for node, children in enumerate(tree.children):
                if not children:
                    continue
                path = [tree.tokens[v] for v in tree.path(node)]
                logits = fresh_logits(seq.tokens, path)
                drafted = [tree.tokens[child] for child in children]
                if draft.q is None:
                    assert drafted == logits.topk(len(children)).indices.tolist()
                else:
                    assert torch.allclose(draft.q[node], torch.softmax(logits, -1), atol=1e-9)
        return drafts

    made.propose = audited
    return made


@pytest.mark.parametrize("options", [{"width": 1}, {"width": 3, "nodes": 9}, {"width": 2, "nodes": 3}])
@pytest.mark.parametrize("sample", ["greedy", "match"])
def test_guesses_equal_a_fresh_forward(options, sample):
    made = audit(drafter(sample=sample, **options))
    seqs = [sequence(p, max_tokens=14, seed=i, temperature=1.0) for i, p in enumerate(([1, 2, 3], [4], [5, 6, 7, 8]))]
    write(seqs, TARGET, made, k=3)
    assert made.is_empty


def test_tree_is_the_best_by_path_probability():
    made, seq = drafter(width=3, nodes=7), sequence([1, 2, 3, 4])
    write_one_round(made, seq)
    draft = made.propose([seq], [Budget(depth=3)])[0]
    level, found = {(): 0.0}, {}
    for _ in range(3):
        best = sorted(level, key=lambda path: -level[path])[:3]
        level = {}
        for path in best:
            children = best_children(fresh_logits(seq.tokens, list(path)), 3)
            level |= {(*path, token): sum_of(found, path) + log_prob for token, log_prob in children}
        found |= level
    tree = host_tree(draft)
    paths = {tuple(tree.tokens[v] for v in tree.path(node)) for node in range(1, draft.num_nodes)}
    assert paths == set(sorted(found, key=lambda path: -found[path])[:7])


def sum_of(found, path):
    return found[path] if path else 0.0


def write_one_round(made, seq):
    """One plain pass over the prompt: the drafter learns its features."""
    seq.request = sequence(seq.tokens, max_tokens=50, k=0).request
    target = TableTarget(vocab_size=V, order=1, sharpness=1.0)

    class Stop(Exception):
        pass

    def stop(_):
        raise Stop

    with pytest.raises(Stop):
        write([seq], target, made, each_step=stop)


def test_only_true_features_are_kept():
    made, seq = drafter(width=2, nodes=6), sequence([1, 2, 3, 4])
    write_one_round(made, seq)
    first = made.propose([seq], [Budget(depth=3)])[0]
    before = NET.num_rows
    again = made.propose([seq], [Budget(depth=3)])[0]
    assert torch.equal(first.tokens, again.tokens)
    assert NET.num_rows - before == 1 + 4  # the last pair, and two expanded nodes on each of two levels


@pytest.mark.parametrize(("width", "size"), [(1, 4), (2, 2)])
def test_a_width_of_one_is_a_chain_and_the_size_of_trees_does_not_cut_it(width, size):
    made, seq = drafter(width=width, nodes=2), sequence([1, 2, 3, 4])
    write_one_round(made, seq)
    assert made.propose([seq], [Budget(depth=4)])[0].num_nodes == 1 + size


def test_asked_twice_it_reads_the_last_of_several_pieces_again():
    """Pairs of two passes wait; the second time only the last pair is read, with its own feature."""
    made, seq = drafter(width=1), sequence([1, 2, 3, 4])
    write_one_round(made, seq)
    seq.tokens.append(5)
    one_hot = torch.nn.functional.one_hot(torch.tensor(seq.tokens[-2:-1]), V).double()
    seen = {tap: 1.5 * one_hot / 1.5 for tap in NET.taps}
    made.observe([Seen(seq=seq, start=len(seq.tokens) - 2, num_committed=1, hidden=seen)])
    first, again = (made.propose([seq], [Budget(depth=3)])[0] for _ in range(2))
    assert first.num_nodes == 4 and torch.equal(first.tokens, again.tokens)
    for i, token in enumerate(again.tokens[1:].tolist()):
        assert token == fresh_logits(seq.tokens, again.tokens[1 : 1 + i].tolist()).argmax()


def test_unseen_rows_leave_a_gap_but_no_harm():
    made, seq = drafter(width=1), sequence([1, 2, 3, 4, 5, 6, 7])
    target = TableTarget(vocab_size=V, order=1, sharpness=1.0)
    target.begin(seq)  # a shared prefix: the first pass that the drafter sees starts at row 4
    target.cached[seq.id] = seq.tokens[:4]
    target.begin = lambda seq: 4
    seq.request = sequence(seq.tokens, max_tokens=50, k=0).request
    with pytest.raises(ZeroDivisionError):
        write([seq], target, made, each_step=lambda _: 1 / 0)
    draft = made.propose([seq], [Budget(depth=3)])[0]
    path = draft.tokens.tolist()[1:]
    for i, token in enumerate(path):
        assert token == fresh_logits(seq.tokens, path[:i], first=4).argmax()


def test_a_batch_does_not_change_a_guess():
    def guesses(texts):
        made = drafter(width=3, nodes=8)
        seqs = [sequence(t) for t in texts]
        for seq in seqs:
            seq.request = sequence(seq.tokens, max_tokens=50, k=0).request
        with pytest.raises(ZeroDivisionError):
            write(seqs, TableTarget(vocab_size=V, order=1, sharpness=1.0), made, each_step=lambda _: 1 / 0)
        return made.propose(seqs, [Budget(depth=1 + len(t)) for t in texts])

    texts = ([1, 2, 3], [4] * 6, [9, 1])
    for text, draft in zip(texts, guesses(texts), strict=True):
        alone = guesses([text])[0]
        assert torch.equal(alone.tokens, draft.tokens) and torch.equal(alone.parents, draft.parents)


@pytest.mark.parametrize("bad", [{"width": -1}, {"nodes": 0}, {"sample": "x"}, {"confidence_threshold": -1}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        EagleOptions(**bad)


def test_a_network_of_other_layers_than_one_is_refused():
    config = EagleConfig(
        taps=(0, 1),
        hidden_size=32,
        vocab_size=61,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_len=64,
        num_layers=2,
    )
    with pytest.raises(CapabilityError, match="num_layers=2"):
        EagleNet(config, tiny_model())
    EagleNet(replace(config, num_layers=1), tiny_model())


def test_another_number_of_heads_needs_no_word_of_those_of_keys():
    """As with other networks on features: the target's number of key heads where it divides, else as many as heads."""
    for heads, kv_heads in ((3, 3), (2, 2), (8, 2)):
        config = LEARN.new(EagleLearning(num_heads=heads), tiny_model(vocab=V), 0).net.config
        assert (config.num_heads, config.num_kv_heads) == (heads, kv_heads)
