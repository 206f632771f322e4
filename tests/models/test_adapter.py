"""Any other model of transformers: logits, trees, commits, batches and bits over our cache."""

import json
from threading import Thread

import pytest
import torch
from models import foreign

from outdraft.cache.config import CacheConfig
from outdraft.core.skip import Skip
from outdraft.models.target.open_network import load_network
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError, ModelLoadError

transformers = pytest.importorskip("transformers")

TREE = (-1, 0, 0, 1, 2, 2)
IDS = torch.randint(61, (20,), generator=torch.Generator().manual_seed(4))
FAMILIES = list(foreign.FAMILIES)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """family -> (directory, network), loaded once."""
    made = {}

    def of(kind):
        if kind not in made:
            directory = foreign.write_model(kind, tmp_path_factory.mktemp(kind))
            made[kind] = directory, load_network(directory)
        return made[kind]

    return of


class Passes:
    """Passes over a cache, and what stays of them."""

    def __init__(self, network, **cache):
        config = network.config
        self.network = network
        self.cache = CacheConfig(**cache).build(
            config.num_layers, config.num_kv_heads, config.head_dim, network.dtype, network.device, 64
        )

    @torch.inference_mode()
    def __call__(self, *rows, exact=False):
        """(sequence, ids, parents or None) each -> logits, sequence after sequence."""
        segments, positions, start = [], [], 0
        for seq, ids, parents in rows:
            base = self.cache.length(seq)
            segments.append(Segment(seq=seq, start=start, stop=start + len(ids), base=base, parents=parents))
            positions += [base + depth for depth in segments[-1].depths()]
            start += len(ids)
            self.cache.reserve(seq, len(ids))
        ids, positions = torch.cat([ids for _, ids, _ in rows]), torch.tensor(positions)
        context = CachedContext(self.cache, segments, exact)
        return self.network.logits(self.network.run(self.network.embed(ids, positions), positions, context).hidden)

    def text(self, seq, ids):
        """A new sequence that holds these ids."""
        self.cache.add(seq)
        out = self((seq, ids, None))
        self.cache.commit(seq, range(len(ids)))
        return out


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_equal_theirs(kind, loaded):
    directory, network = loaded(kind)
    passes = Passes(network)
    ours = torch.cat((passes.text(0, IDS[:13]), passes((0, IDS[13:], None))))
    assert torch.allclose(ours, foreign.own_logits(directory, IDS), atol=1e-4, rtol=0)
    assert ours.abs().max() > 0.5  # a model whose logits vanish shows nothing


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_tree_equals_each_of_its_paths(kind, loaded):
    """Masked, and row by row, in turn."""
    passes, ids, exact = Passes(loaded(kind)[1]), IDS[10:16], FAMILIES.index(kind) % 2 == 1
    passes.text(0, IDS[:10])
    for i in range(3):
        passes.cache.fork(0, 1 + i)
    tree = passes((0, ids, TREE), exact=exact)
    for i, path in enumerate(([0, 1, 3], [0, 2, 4], [0, 2, 5])):
        assert torch.allclose(tree[path], passes((1 + i, ids[path], None)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_path_with_gaps_is_kept_and_the_rest_rolled_back(kind, loaded):
    directory, network = loaded(kind)
    passes, ids = Passes(network, poison=True), IDS[10:16]
    passes.text(0, IDS[:10])
    passes((0, ids, TREE))
    passes.cache.commit(0, [0, 2, 5])
    passes((0, ids, TREE))
    passes.cache.commit(0, [])
    text = torch.cat((IDS[:10], ids[[0, 2, 5]], IDS[16:18]))
    ours = passes((0, IDS[16:18], None))
    assert torch.allclose(ours, foreign.own_logits(directory, text)[13:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", FAMILIES)
def test_two_texts_of_different_length_in_one_pass(kind, loaded):
    directory, network = loaded(kind)
    passes = Passes(network, layout="paged")
    passes.text(0, IDS[:9])
    passes.cache.add(1)
    both = passes((0, IDS[9:12], None), (1, IDS[3:8], None))
    assert torch.allclose(both[:3], foreign.own_logits(directory, IDS[:12])[9:], atol=1e-4, rtol=0)
    assert torch.allclose(both[3:], foreign.own_logits(directory, IDS[3:8]), atol=1e-4, rtol=0)


def test_a_cache_of_bytes_is_near(loaded):
    directory, network = loaded("gpt_oss")
    passes = Passes(network, dtype="int8")
    passes.text(0, IDS[:12])
    ours, theirs = passes((0, IDS[12:], None)), foreign.own_logits(directory, IDS)[12:]
    assert 1e-6 < (ours - theirs).abs().max() < 0.2 * theirs.abs().max()


@pytest.mark.parametrize("kind", ["qwen3_moe", "opt"])
def test_taps_are_their_hidden_states(kind, loaded):
    directory, network = loaded(kind)
    count = network.config.num_layers
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    places = torch.arange(len(IDS))
    with torch.inference_mode():
        theirs = model(input_ids=IDS[None], output_hidden_states=True, use_cache=False)
        run = network.run(network.embed(IDS, places), places, CausalContext(1, len(IDS)), taps=range(count + 1))
        logits = network.head(network.norm(run.hidden))
    assert sorted(run.taps) == list(range(count + 1))
    for i in range(1, count):
        assert torch.allclose(run.taps[i], theirs.hidden_states[i][0], atol=1e-4, rtol=0)
    assert torch.equal(run.taps[count], run.hidden)
    assert torch.allclose(network.norm(run.hidden), theirs.hidden_states[-1][0], atol=1e-4, rtol=0)
    assert torch.allclose(logits, theirs.logits[0], atol=1e-4, rtol=0)


EXACT = [kind for kind in FAMILIES if kind != "gemma3n_text"]  # it mixes its states by a product of four dimensions


@pytest.mark.parametrize("kind", EXACT)
def test_rows_have_the_bits_of_decoding_one_by_one(kind, loaded):
    """In float32, and in bfloat16, in turn."""
    network = loaded(kind)[1] if EXACT.index(kind) % 2 else load_network(loaded(kind)[0], "bfloat16")
    assert network.exact
    passes, ids = Passes(network), torch.randint(61, (20,), generator=torch.Generator().manual_seed(8))
    for seq in range(3):
        passes.text(seq, IDS[:3])
    alone = []
    for one in ids:
        alone.append(passes((0, one[None], None), exact=True))
        passes.cache.commit(0, [0])
    alone = torch.cat(alone)
    for count in (2, 3, 4, 5, 8, 9, 20):
        assert torch.equal(passes((1, ids[:count], None), exact=True), alone[:count])
    both = passes((1, ids[:7], None), (2, torch.cat((ids[:4], ids[9:12])), (-1, 0, 1, 2, 0, 4, 3)), exact=True)
    assert torch.equal(both[:7], alone[:7])
    assert torch.equal(both[7:11], alone[:4])


def test_without_care_rows_have_other_bits(loaded):
    directory = loaded("qwen3_moe")[0]
    network = load_network(directory, exact=False)
    assert not network.exact
    passes = Passes(network)
    passes.text(0, IDS[:3])
    many = passes((0, IDS[3:12], None), exact=True)
    assert not torch.equal(many[:1], passes((0, IDS[3:4], None), exact=True))  # else the test above shows nothing


def test_a_prompt_in_one_piece_is_followed_by_exact_rows(loaded):
    network, ids = loaded("mixtral")[1], torch.randint(61, (100,), generator=torch.Generator().manual_seed(8))
    rows = []
    for more in (1, 5):
        passes = Passes(network)
        passes.cache = CacheConfig().build(4, 2, 16, network.dtype, network.device, 128)
        passes.cache.add(0)
        passes.cache.reserve(0, 80 + more)
        places = torch.arange(80 + more)
        segment = Segment(seq=0, start=0, stop=80 + more, base=0, bulk=80)
        context = CachedContext(passes.cache, [segment])
        with torch.inference_mode():
            h = network.run(network.embed(ids[: 80 + more], places), places, context).hidden
        rows.append(h[:81])
    assert torch.equal(*rows)


def test_a_function_that_may_mix_rows_makes_a_model_inexact(loaded, tmp_path, monkeypatch, caplog):
    from transformers.models.opt.modeling_opt import OPTDecoderLayer as Layer

    foreign.write_model("opt", tmp_path)
    told = Layer.forward
    monkeypatch.setattr(
        Layer, "forward", lambda self, h, *args, **more: told(self, torch.cumsum(h, -1) * 1, *args, **more)
    )
    network = load_network(tmp_path)
    assert not network.exact and network.unknown == {"cumsum"}
    assert "opt: the numbers of a row depend on the other rows of its pass (cumsum)" in caplog.text


def test_a_part_of_the_layers_is_refused_by_name(loaded):
    network = loaded("qwen3_moe")[1]
    places = torch.arange(3)
    h, context = network.embed(IDS[:3], places), CausalContext(1, 3)
    parts = ({"start": 1}, {"stop": 2}, {"skip": Skip(frozenset({1}))}, {"taps": (-2,)})
    for part in parts:
        with pytest.raises(CapabilityError, match="'qwen3_moe' runs through transformers, whole passes only"):
            network.run(h, places, context, **part)


def test_vectors_are_refused_where_layers_read_ids(loaded):
    network, places = loaded("gemma4_text")[1], torch.arange(3)
    context = CausalContext(1, 3)
    h = network.embed(IDS[:3], places)
    h[1] += 1
    with pytest.raises(CapabilityError, match="reads token ids in its layers"):
        network.run(h, places, context)
    other = loaded("qwen3_moe")[1]
    h = other.embed(IDS[:3], places)
    before = other.run(h, places, context).hidden
    h[1] += 1
    assert not torch.allclose(other.run(h, places, context).hidden[1], before[1])


def test_what_the_engine_asks_of_it(loaded):
    directory, network = loaded("gemma4_text")
    config = network.config
    assert (config.architecture, config.vocab_size, config.num_layers, config.max_len) == ("gemma4_text", 61, 4, 128)
    assert (config.head_dim, config.windows, config.eos_ids) == (32, (6, None, 6, None), (2,))
    assert network.kernels == "pytorch"
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    assert network.num_parameters == sum(one.numel() for one in model.parameters())


def test_another_pass_in_the_middle_of_one_disturbs_it_not(loaded):
    """Engines of several threads share one network."""
    network, places = loaded("gemma4_text")[1], torch.arange(6)

    @torch.inference_mode()
    def run(ids):
        h = network.embed(ids, places)
        return network.run(h, places, CausalContext(1, 6), taps=(2,))

    wanted = run(IDS[:6])
    others = []

    def beside(*_):
        if not others:
            others.append(Thread(target=lambda: (run(IDS[6:12]), network.norm(torch.ones(6, 64)))))
            others[0].start()
            others[0].join()

    layer = network.model.model.layers[1]
    handle = layer.register_forward_hook(beside)
    try:
        disturbed = run(IDS[:6])
    finally:
        handle.remove()
    assert others
    assert torch.equal(disturbed.hidden, wanted.hidden) and torch.equal(disturbed.taps[2], wanted.taps[2])


def test_half_precision_and_stored_type(tmp_path):
    foreign.write_model("qwen3_moe", tmp_path)
    assert load_network(tmp_path, "bf16").dtype == torch.bfloat16
    with pytest.raises(ModelLoadError, match="dtype='float11' is not known"):
        load_network(tmp_path, "float11")


def test_a_model_that_outdraft_knows_goes_there_if_asked(tmp_path):
    from outdraft.models.files.load import save_model
    from outdraft.testing.tiny import random_decoder
    from tests.helpers.tiny_families import tiny_config

    save_model(random_decoder(tiny_config("olmo3"), dtype=torch.float32), tmp_path)
    ids = IDS % tiny_config("olmo3").vocab_size
    own, theirs = (Passes(load_network(tmp_path, model_impl=impl)) for impl in ("outdraft", "transformers"))
    assert type(own.network) is not type(theirs.network)
    assert torch.allclose(own.text(0, ids), theirs.text(0, ids), atol=1e-4, rtol=0)


def test_the_text_of_a_wrapper_alone_is_read(tmp_path):
    from safetensors.torch import load_file, save_file

    foreign.write_model("gemma4_text", tmp_path / "text")
    wrapper = tmp_path / "wrapper"
    wrapper.mkdir()
    text = json.loads((tmp_path / "text/config.json").read_text())
    raw = {"model_type": "gemma4", "text_config": text, "eos_token_id": [2, 7], "tie_word_embeddings": True}
    (wrapper / "config.json").write_text(json.dumps(raw))
    held = load_file(tmp_path / "text/model.safetensors")
    named = {name.replace("model.", "model.language_model.", 1): one for name, one in held.items()}
    save_file(named | {"model.vision_tower.x": torch.zeros(2)}, wrapper / "model.safetensors", {"format": "pt"})
    network = load_network(wrapper)
    assert network.config.eos_ids == (2, 7)
    ours = Passes(network).text(0, IDS)
    assert torch.allclose(ours, foreign.own_logits(tmp_path / "text", IDS), atol=1e-4, rtol=0)


def test_rotary_frequencies_that_change_with_the_length_of_a_pass_limit_the_context(tmp_path, caplog):
    factors = {"short_factor": [1 + i / 9 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "original_max_position_embeddings": 32,
        "factor": 4.0,
        **factors,
    }
    foreign.write_model("mixtral", tmp_path, rope_parameters=rope, sliding_window=None, head_dim=16)
    network = load_network(tmp_path)
    assert network.config.max_len == 32
    assert "mixtral is limited to 32 tokens through transformers" in caplog.text
    assert torch.allclose(Passes(network).text(0, IDS), foreign.own_logits(tmp_path, IDS), atol=1e-4, rtol=0)
