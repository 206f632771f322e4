"""Who trains what at which rate, and a step that is left out."""

from dataclasses import fields

import pytest
import torch
from torch import nn

from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.learn.muon import Muon, orthogonal
from outdraft.learn.step import TABLES, Optimizer
from outdraft.nn.linear import LinearMap
from outdraft.testing.tiny import tiny_model

RATES = {"lr": 2e-3, "muon_lr": 3e-3, "weight_decay": 0.01}


def parameters():
    shapes = {"layers.0.up.weight": (6, 4), "embedding": (9, 4), "norm.weight": (4,), "lm_head.weight": (9, 4)}
    return {name: nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()}


def kinds(optimizer):
    return {
        type(part).__name__: [tuple(p.shape) for g in part.param_groups for p in g["params"]]
        for part, _ in optimizer._parts
    }


def test_matrices_are_muons_and_the_rest_is_adamws():
    named = parameters()
    made = Optimizer(named.items(), **RATES, vocab_size=9)
    assert kinds(made) == {"Muon": [(6, 4)], "AdamW": [(9, 4), (9, 4), (4,)]}
    assert kinds(Optimizer(named.items(), **{**RATES, "muon_lr": 0.0})) == {"AdamW": [(6, 4), (9, 4), (9, 4), (4,)]}


WHOLE = {"lilicorr"}  # whose candidates are of the whole vocabulary


@pytest.mark.parametrize("kind", learner_names())
def test_output_heads_and_tables_of_every_kind_are_adamws(kind):
    """A blank more than the vocabulary, some of its tokens only, vectors of places: none is a matrix of the network."""
    target, method = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32), find_learner(kind)
    cuts = kind not in WHOLE and "draft_vocab_size" in {one.name for one in fields(method.options)}
    options = {"draft_vocab_size": 40} if cuts else {}
    module = method.new(method.options(**options), target, 0).module
    made = Optimizer(module.named_parameters(), **RATES, vocab_size=61)
    names = {id(p): name for name, p in module.named_parameters()}
    muons = [
        names[id(p)]
        for part, _ in made._parts
        for g in part.param_groups
        for p in g["params"]
        if isinstance(part, Muon)
    ]
    assert len(muons) > 1 or {name.rpartition(".")[2] for name in names.values()} <= TABLES
    for name in muons:
        assert isinstance(module.get_submodule(name.rpartition(".")[0]), LinearMap), name
        assert not {40, 61, 62} & set(module.get_parameter(name).shape), name


def test_rates_follow_the_schedule_and_vectors_do_not_decay():
    named = parameters()
    for one in named.values():
        one.grad = torch.zeros_like(one)
    optimizer = Optimizer(named.items(), lr=0.1, muon_lr=0.2, weight_decay=0.5, vocab_size=9)
    optimizer.step(0.5)
    assert torch.allclose(named["embedding"], torch.full((9, 4), 1 - 0.05 * 0.5))
    assert torch.allclose(named["layers.0.up.weight"], torch.full((6, 4), 1 - 0.1 * 0.5), atol=1e-6)
    assert torch.equal(named["norm.weight"], torch.ones(4))
    optimizer.clear()
    assert all(one.grad is None for one in named.values())


def test_muons_step_is_as_large_as_adams():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(24, 40))
    weight.grad = torch.randn(24, 40)
    Optimizer([("up.weight", weight)], lr=2e-3, muon_lr=1.0, weight_decay=0.0).step(1.0)
    values = torch.linalg.svdvals(weight.detach()) / (0.2 * 40**0.5)
    assert values.min() > 0.4 and values.max() < 1.4


def test_a_step_is_cut_to_its_norm_and_one_without_a_finite_gradient_is_left_out():
    weight = nn.Parameter(torch.zeros(4))
    optimizer = Optimizer([("norm.weight", weight)], **RATES)
    weight.grad = torch.full((4,), 3.0)
    assert optimizer.update(1.0, clip=1.0) and weight.grad.norm() <= 1.0 and (weight < 0).all()
    before, weight.grad = weight.detach().clone(), torch.tensor([1.0, torch.inf, 0.0, 0.0])
    assert not optimizer.update(1.0, clip=1.0) and torch.equal(weight.detach(), before)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (16, 16)])
def test_muon_is_pytorchs_in_float32(shape):
    """Ten steps with decay; PyTorch's rounds each to bfloat16."""
    generator = torch.Generator().manual_seed(3)
    start, gradients = (torch.randn(*more, *shape, generator=generator) for more in ((), (10,)))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    made = Muon([ours], lr=0.01, weight_decay=0.1)
    like = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        for parameter, optimizer in ((ours, made), (theirs, like)):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved
    assert torch.equal(
        made.state_dict()["state"][0]["momentum_buffer"], like.state_dict()["state"][0]["momentum_buffer"]
    )


def test_a_frozen_matrix_stays_and_a_matrix_of_zeros_has_no_direction():
    frozen, still = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))
    still.grad = torch.zeros(3, 4)
    Muon([frozen, still], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(frozen, torch.ones(3, 4)) and torch.equal(still, torch.ones(3, 4))
    assert torch.equal(orthogonal(torch.zeros(2, 5)), torch.zeros(2, 5))


@pytest.mark.parametrize("has", [False, True])
def test_a_cpu_multiplies_what_it_has_instructions_for(monkeypatch, has):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    matrix = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = orthogonal(matrix)
    assert found.dtype == (torch.bfloat16 if has else torch.float32)
    values = torch.linalg.svdvals(found.float())
    assert values.min() > 0.6 and values.max() < 1.3, "singular values are about 1 in both"
