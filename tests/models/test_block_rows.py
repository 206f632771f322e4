"""Every type of block through whole models on the native kernels: rows in company, drafts, weights kept or streamed."""

import pytest
import torch
from kernels.test_ragged import run_pass
from models.test_streamed import equal, run
from weights.test_gguf_blocks import k_m, load_model, model_of, write_blocks

from outdraft.engine.llm import LLM
from outdraft.kernels.library import library
from outdraft.models.remake import packed_cache
from outdraft.models.remake.packed_cache import packed_file
from outdraft.models.remake.streamed import load_streamed
from outdraft.models.target.open_network import load_network, open_model
from outdraft.nn.quant.blocks import BLOCKS
from outdraft.testing.losslessness import SETTINGS, Auditor

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
KINDS = [*BLOCKS, "mixed"]


@pytest.fixture(params=KINDS)
def path(request, tmp_path_factory, monkeypatch):
    """A file in one type, or in several; packed weights are kept in a cache of the test's own."""
    kind, home = request.param, tmp_path_factory.mktemp("blocks")
    monkeypatch.setenv("OUTDRAFT_CACHE", str(home / "cache"))
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    return write_blocks(home / f"{kind}.gguf", k_m if kind == "mixed" else lambda part: kind, model_of(num_layers=4))


def test_a_ragged_pass_of_trees_has_the_bits_of_its_paths_alone(path):
    native, wide = load_network(path), load_model(path, dtype="float32")
    for seed in (2, 5):
        assert max(run_pass(seed, native, wide, path.stem)) < 1


def test_kept_and_streamed_weights_have_the_bits_of_those_in_memory(path, monkeypatch):
    pieces = open_model(path, None, torch.device("cpu"), streams=True).pieces
    inside, mapped = run(pieces.pack()), load_network(path)
    sizes = [-(-unit.size // 4096) * 4096 for unit in packed_file(pieces).units]
    streamed = load_streamed(pieces, max(2 * max(sizes), sum(sizes) // 2))
    assert mapped.stack.lender is not None and streamed.units.streamed
    assert equal(inside, run(mapped)) and equal(inside, run(streamed))


def test_chains_and_trees_of_drafts_change_nothing(path):
    plain = LLM(path, drafter="none")
    auditor = Auditor(plain=plain, prompts=[[i, 7] * 3 for i in range(1, 4)], distribution_prompts=[[1]], max_tokens=12)
    tree = {"name": "draft_model", "model": str(path), "width": 2, "sample": "greedy"}
    for drafter, setting in zip(("ngram", tree), SETTINGS, strict=False):
        check = auditor.identity(plain.with_drafter(drafter, num_speculative_tokens=5), setting)
        assert check.passed and check.conclusive, check.detail
