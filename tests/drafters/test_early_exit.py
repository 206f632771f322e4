"""Early exit: rows that resume equal a full forward, chains equal the first layers' own argmax, ragged depths."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.core.draft import host_tree
from outdraft.core.policy import Budget
from outdraft.drafters.early_exit.learn import LEARN
from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead, save_exit_head
from outdraft.engine.runner import Runner
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.audit import CacheRecheck
from outdraft.testing.tiny import tiny_model

MODEL = tiny_model(layers=4, vocab=31)


@pytest.fixture(autouse=True)
def as_in_the_loop():
    with torch.inference_mode():
        yield


@pytest.fixture
def head(tmp_path):
    net = EarlyExitHead(EarlyExitConfig(exit_layer=2, hidden_size=32, inner_size=48), torch.float64)
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    save_exit_head(net, tmp_path / "exit")
    return net, str(tmp_path / "exit")


def layers(tokens, stop=None):
    """Hidden states [T, D] after `stop` layers, uncached."""
    ids, places = torch.tensor(tokens), torch.arange(len(tokens))
    return MODEL.run(MODEL.embed(ids, places), places, CausalContext(1, len(tokens)), stop=stop).hidden


class Watched:
    """A runner that remembers the hidden states and logits of its last pass, and how many early passes there were."""

    def __init__(self, runner):
        self.runner, self.num_early, self.last = runner, 0, None

    def __getattr__(self, name):
        return getattr(self.runner, name)

    def forward(self, packed, taps=()):
        out = self.runner.forward(packed, taps)
        for i, (seq, tree) in enumerate(zip(packed.seqs, packed.trees, strict=True)):
            for node in range(len(tree.tokens) if tree is not None else 0):
                path = [tree.tokens[v] for v in (0, *tree.path(node))]
                expected = MODEL.logits(layers([*seq.tokens[:-1], *path])[-1:])[0]
                assert torch.allclose(out.logits[packed.node_starts[i] + node], expected, atol=1e-9)
        return out

    def commit(self, seq, keep):
        self.runner.commit(seq, keep)
        cached = seq.tokens[: self.runner.cache.length(seq.id)]
        CacheRecheck(self.runner)(seq, cached)

    @property
    def port(self):
        return replace(self.runner.port, layers=CountedLayers(self))


class CountedLayers:
    """The layers of a watched runner."""

    def __init__(self, watched):
        self._watched, self._layers = watched, watched.runner.port.layers

    def __getattr__(self, name):
        return getattr(self._layers, name)

    def run(self, *rows, **part):
        self._watched.num_early += 1
        return self._layers.run(*rows, **part)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.8}])
@pytest.mark.parametrize("trained", [False, True])
def test_verified_rows_equal_a_full_forward(params, trained, head):
    target = Watched(Runner(MODEL))
    drafter = make("early_exit", target, exit_layer=2, model=head[1] if trained else "")
    seqs = [sequence(p, max_tokens=16, k=k, **params) for p, k in (([1, 2, 3], 3), ([4], 0), ([5, 6], 1), ([7] * 9, 4))]
    write(seqs, target, drafter)


def test_a_chain_is_the_first_layers_own_text(head):
    net, path = head
    runner = Runner(MODEL)
    drafter, seq = make("early_exit", runner, model=path), sequence([1, 2, 3, 4], k=0)
    with pytest.raises(ZeroDivisionError):
        write([seq], runner, drafter, each_step=lambda _: 1 / 0)
    target = Watched(runner)
    drafter._port = target.port
    draft = drafter.propose([seq], [Budget(depth=3)])[0]
    text = list(seq.tokens)
    for token in draft.tokens[1:].tolist():
        assert token == MODEL.logits(net(layers(text, 2)[-1:])).argmax()
        text.append(token)
    assert draft.q is None and draft.resume.layer == 2 and target.num_early == 4
    assert torch.allclose(draft.resume.hidden, layers(text, 2)[-4:], atol=1e-9)


def test_ragged_depths_share_passes_and_drop_out(head):
    runner = Runner(MODEL)
    drafter = make("early_exit", runner, model=head[1])
    seqs = [sequence([i + 1, 2, 3], k=0) for i in range(4)]
    with pytest.raises(ZeroDivisionError):
        write(seqs, runner, drafter, each_step=lambda _: 1 / 0)
    target = Watched(runner)
    drafter._port = target.port
    drafts = drafter.propose(seqs, [Budget(depth=d, nodes=n) for d, n in ((2, None), (0, None), (4, 1), (4, None))])
    assert [draft.num_nodes for draft in drafts] == [3, 1, 2, 5]
    assert [draft.resume is not None for draft in drafts] == [True, False, True, True]
    assert target.num_early == 5
    for seq, draft in zip(seqs, drafts, strict=True):
        alone = drafter.propose([seq], [Budget(depth=draft.num_nodes - 1)])[0]
        assert torch.equal(alone.tokens, draft.tokens)
        assert draft.resume is None or torch.equal(alone.resume.hidden, draft.resume.hidden)
        assert host_tree(draft).is_chain


def test_exit_layers_that_make_no_sense():
    with pytest.raises(CapabilityError, match="exit_layer=4"):
        make("early_exit", Runner(MODEL), exit_layer=4)
    assert make("early_exit", Runner(MODEL)).exit_layer == 1


def test_a_head_is_not_asked_at_another_layer_than_its_own(head):
    with pytest.raises(CapabilityError, match=r"exit_layer=1, but exit head .* was trained after 2 layers: leave"):
        make("early_exit", Runner(MODEL), exit_layer=1, model=head[1])
    for layer in (0, 2):
        assert make("early_exit", Runner(MODEL), exit_layer=layer, model=head[1]).exit_layer == 2


def test_a_head_after_no_layer_is_refused(tmp_path):
    net = EarlyExitHead(EarlyExitConfig(exit_layer=0, hidden_size=32, inner_size=8))
    for parameter in net.parameters():
        parameter.fill_(0.1)
    save_exit_head(net, tmp_path)
    with pytest.raises(CapabilityError, match="exit_layer=0 leaves nothing to draft or to verify with"):
        make("early_exit", Runner(MODEL), model=str(tmp_path))
    with pytest.raises(ConfigError, match="after 0 layers"):
        LEARN.load(LEARN.options(), MODEL, tmp_path)


def test_a_head_of_another_width_is_refused(tmp_path):
    net = EarlyExitHead(EarlyExitConfig(exit_layer=1, hidden_size=16, inner_size=8))
    for parameter in net.parameters():
        parameter.fill_(0.1)
    save_exit_head(net, tmp_path)
    with pytest.raises(CapabilityError, match=r"16 wide.*32"):
        make("early_exit", Runner(MODEL), model=str(tmp_path))


@pytest.mark.parametrize("bad", [{"exit_layer": -1}, {"sample": "x"}, {"confidence_threshold": 2}])
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        make("early_exit", Runner(MODEL), **bad)
