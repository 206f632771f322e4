"""Heads beside a target on the native kernels: their maps are packed there, rounded or not, and say what PyTorch
says."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from contracts.at_once import bits, crowds, reuse, texts
from contracts.native_rows import small, wide
from contracts.sides import random_heads
from contracts.test_native_drafters import PROMPTS, NativeSubject, first_guesses

from outdraft.core.registry import make_options
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.remake.packed_map import PackedMap, pack_maps
from outdraft.nn.linear import Linear
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.contract import greedy_equals_reference
from outdraft.testing.spec_table import DrafterRow

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")


def heads(kind, **options):
    """Random ones for the small target, in its type."""
    made = random_heads(kind, **options)

    def side(target, directory):
        return made(small(target.config.vocab_size), directory)

    return side


ROWS = [
    DrafterRow(drafter=kind, label=label, side=heads(kind), options=options)
    for kind in ("medusa", "hydra", "amphista", "redrafter", "blockwise")
    for label, options in (("chain", {"width": 1, "sample": "match"}), ("tree", {"width": 2, "sample": "match"}))
] + [DrafterRow(drafter="ctc", side=heads("ctc"), options={"width": 2, "nodes": 8})]


def slow(row):
    """Chains of heads that have trees: less can go wrong with them."""
    return (pytest.mark.slow,) if row.label == "chain" else ()


@pytest.fixture(scope="module", params=[pytest.param(row, id=row.name, marks=slow(row)) for row in ROWS])
def subject(request, tmp_path_factory):
    return NativeSubject(request.param, tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize("check", [texts, bits, crowds, reuse], ids=lambda check: check.__name__)
def test_contract(subject, check):
    check(subject, ROWS.index(subject.row))


def rounded(subject, quantization):
    """The same row, its weights rounded so."""
    made = NativeSubject.__new__(NativeSubject)
    made.__dict__ |= subject.__dict__
    options = {**subject.row.side(subject.decoder, subject.directory), **subject.row.options}
    made.options = make_options(subject.method, {**options, "quantization": quantization})
    return made


@pytest.mark.parametrize(
    ("quantization", "most", "temperature"),
    [("none", 0.05, 0.0), ("none", 0.05, 0.8), ("int8", 0.06, 0.8), ("int4", 0.08, 0.8)],
)
def test_guesses_are_pytorchs_and_do_not_depend_on_the_batch(subject, quantization, most, temperature):
    params = SamplingParams(temperature=temperature)
    one = rounded(subject, quantization)
    found = first_guesses(one, PROMPTS, params)
    for prompt, draft in zip(PROMPTS, found, strict=True):
        (alone,) = first_guesses(one, [prompt], params)
        assert torch.equal(alone.tokens, draft.tokens) and torch.equal(alone.parents, draft.parents)
        assert alone.q is None or torch.equal(alone.q, draft.q)
    exact = first_guesses(rounded(subject, quantization), PROMPTS, params, runner=Runner(wide(subject.vocab_size)))
    for native, twin in zip(found, exact, strict=True):
        assert native.num_nodes > 1
        if native.q is not None:
            same = 1
            while same < min(native.num_nodes, twin.num_nodes) and native.tokens[same] == twin.tokens[same]:
                same += 1
            rows = same if "chain" in subject.row.label else 1  # a node's row tells of the same path only in a chain
            rows = min(rows, len(native.q), len(twin.q))
            off = (native.q[:rows] - twin.q[:rows]).abs().sum(-1) / 2
            assert float(off.max()) < most


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_map_is_the_map(bias, dtype):
    target = NativeDecoder(small(61))
    net = torch.nn.Sequential(Linear(64, 40, bias, dtype, torch.device("cpu")))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    x = torch.randn(3, 2, 64, generator=torch.Generator().manual_seed(2))[:, 1].to(dtype)  # not contiguous
    if dtype == torch.float32:
        net[0].weight.data = net[0].weight.data.bfloat16().float()
    wanted = net(x.bfloat16().to(dtype))
    if dtype == torch.float32:
        net = net.bfloat16()
    pack_maps(net, target)
    assert isinstance(net[0], PackedMap)
    found = net(x)
    assert found.dtype == dtype and found.shape == (3, 40)
    torch.testing.assert_close(found, wanted, atol=0.05, rtol=0.02)
    assert torch.equal(net(x[1:2]), found[1:2])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("domino", {"taps": (1,), "state": 5, "rank": 20}),
        ("dspark", {"taps": (1,), "head": "rnn", "rank": 20}),
        ("lilicorr", {"taps": (1,), "chain_size": 24, "factor_dim": 6}),
        ("xpress", {"taps": (1,), "rank": 12}),
        ("blockwise", {"inner_size": 20}),
        ("kangaroo", {"num_heads": 1, "num_kv_heads": 1, "head_dim": 16}),
        ("early_exit", {"inner_size": 20}),
    ],
)
def test_a_map_of_any_width_drafts_beside_the_kernels(kind, options, tmp_path):
    """By default: only a rounding that was asked for is refused."""
    greedy_equals_reference(NativeSubject(DrafterRow(drafter=kind, side=heads(kind, **options)), tmp_path))


def test_a_rounding_that_is_not_known_is_an_error(subject):
    with pytest.raises(ConfigError, match="quantization='int3'"):
        make_options(subject.method, {"quantization": "int3"})


def test_without_a_width_the_shape_fits_the_kernels():
    row = next(row for row in ROWS if row.drafter == "medusa")
    subject = NativeSubject(replace(row, options={"sample": "greedy"}), Path(mkdtemp()))
    (draft,) = first_guesses(subject, PROMPTS[:1], SamplingParams())
    siblings = Counter(draft.parents.tolist())
    assert len(draft.tokens) > 2
    assert (max(siblings.values()) == 1) == (subject.decoder.kernels != "amx")
