"""The heads of a bigger target guess what those of the small one guess."""

import pytest
import torch
from contracts.rows.amphista import heads as amphista_heads
from contracts.rows.blockwise import heads as blockwise_layers
from contracts.rows.ctc import slots as ctc_slots
from contracts.rows.dflash import blocks as dflash_blocks
from contracts.rows.dflash2 import blocks as dflash2_blocks
from contracts.rows.domino import blocks as domino_blocks
from contracts.rows.dspark import SHAPE as DSPARK
from contracts.rows.dspark import blocks as dspark_blocks
from contracts.rows.eagle import eagle_net
from contracts.rows.eagle1 import eagle1_net
from contracts.rows.eagle3 import eagle3_net
from contracts.rows.eagle3 import fewer_tokens as eagle3_trimmed
from contracts.rows.early_exit import exit_head
from contracts.rows.falcon import net as falcon_net
from contracts.rows.hydra import heads as hydra_heads
from contracts.rows.hydra import plus as hydra_plus
from contracts.rows.lilicorr import SHAPE as LILICORR
from contracts.rows.lilicorr import blocks as lilicorr_blocks
from contracts.rows.medusa import borrowed as medusa_borrowed
from contracts.rows.medusa import heads as medusa_heads
from contracts.rows.mtp import mtp_net
from contracts.rows.p_eagle import SHAPE as P_EAGLE
from contracts.rows.redrafter import heads as redrafter_head
from contracts.rows.specdec import slots as specdec_slots
from contracts.rows.xpress import blocks as xpress_blocks
from contracts.sides import random_heads
from drafters.drafting import make, sequence

from outdraft.bench.drafts import inflate_head, method_of
from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.drafters.shared.learning.inflate import layers_after
from outdraft.engine.runner import Runner
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.inflate import inflate
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config


def guess(target_dir, name, head_dir, **options):
    """The tree or chain after a prompt."""
    runner = Runner(load_model(target_dir))
    drafter, seq = make(name, runner, model=str(head_dir), **options), sequence([3, 1, 4, 1, 5, 9, 2, 6])
    n = len(seq.tokens) - 1
    with torch.inference_mode():
        runner.begin(seq)
        drafter.begin([seq])
        hidden = runner.forward(pack([seq], [chain([seq.pending])]), drafter.needs.taps).hidden
        runner.commit(seq, range(n))
        seq.num_cached = n
        drafter.observe([Seen(seq=seq, start=0, num_committed=n, hidden={t: h[:n] for t, h in hidden.items()})])
        return drafter.propose([seq], [Budget(depth=5)])[0]


HEADS = [
    ("dflash", dflash_blocks, {"width": 3, "nodes": 12}),
    ("dflash2", dflash2_blocks, {"width": 3, "nodes": 12}),
    ("lilicorr", lilicorr_blocks, {"width": 3, "nodes": 12}),
    ("specdec", specdec_slots, {"width": 3, "nodes": 12}),
    ("domino", domino_blocks, {"width": 3, "nodes": 12}),
    ("xpress", xpress_blocks, {"width": 3, "nodes": 12}),
    ("dspark", dspark_blocks, {"width": 1}),
    ("dspark", random_heads("dspark", **DSPARK, head="gated"), {"width": 3, "nodes": 12}),
    ("dspark", random_heads("dspark", **DSPARK, head="rnn"), {"width": 3, "nodes": 12}),
    ("eagle", eagle_net, {"width": 3, "nodes": 12}),
    ("eagle", eagle_net, {"width": 1}),
    ("early_exit", exit_head, {}),
    ("eagle3", eagle3_net, {"width": 3, "nodes": 12}),
    ("eagle3", eagle3_trimmed, {"width": 3, "nodes": 12}),
    ("p_eagle", random_heads("p_eagle", **P_EAGLE), {"width": 3, "nodes": 12}),
    (
        "p_eagle",
        random_heads("p_eagle", **{**P_EAGLE, "num_depths": 6}, norm_before_fc=True, train_embedding=False),
        {"width": 1},
    ),
    ("falcon", falcon_net, {"width": 3, "nodes": 12}),
    ("mtp", mtp_net, {"width": 3, "nodes": 12}),
    ("mtp", random_heads("mtp", draft_vocab_size=20), {"width": 3, "nodes": 12}),
    ("eagle1", random_heads("eagle1", draft_vocab_size=20), {"nodes": 12}),
    ("eagle", random_heads("eagle", draft_vocab_size=20), {"width": 1}),
    ("hydra", random_heads("hydra", draft_vocab_size=20, own_projections=False), {"width": 3, "nodes": 12}),
    ("hydra", random_heads("hydra", draft_vocab_size=20), {"width": 3, "nodes": 12}),
    ("ctc", random_heads("ctc", draft_vocab_size=20), {"width": 4}),
    ("kangaroo", random_heads("kangaroo", draft_vocab_size=20), {}),
    ("eagle1", eagle1_net, {"nodes": 12}),
    ("hass", eagle1_net, {"width": 3, "nodes": 12}),
    ("medusa", medusa_borrowed, {"width": 3, "nodes": 12}),
    ("medusa", medusa_heads, {"width": 3, "nodes": 12}),
    ("hydra", hydra_heads, {"width": 3, "nodes": 12}),
    ("hydra", hydra_plus, {"width": 3, "nodes": 12}),
    ("amphista", amphista_heads, {"width": 3, "nodes": 12}),
    ("redrafter", redrafter_head, {"width": 3, "nodes": 12}),
    ("ctc", ctc_slots, {"width": 3, "nodes": 12}),
    ("blockwise", blockwise_layers, {"width": 3, "nodes": 12}),
]
SIZES = ((2, 3), (1, 7), (4, 8))  # width, depth


@pytest.mark.parametrize("turn", range(len(HEADS)), ids=[f"{i}-{name}" for i, (name, *_) in enumerate(HEADS)])
@pytest.mark.parametrize("tie", [True, False])
def test_guesses_are_the_small_pairs(turn, tie, tmp_path):
    """Every head with and without a tied embedding, at two of the three sizes: a square, in which all pairs meet."""
    (name, make_head, options), (width, depth) = HEADS[turn], SIZES[(turn + tie) % 3]
    target = random_decoder(tiny_config(layers=3, tie=tie), dtype=torch.float64)
    save_model(target, tmp_path / "small")
    head = tmp_path / "head"
    head.mkdir()
    make_head(target, head)
    assert method_of(head) is not None and method_of(tmp_path / "small") is None
    inflate(tmp_path / "small", tmp_path / "big", width=width, depth=depth)
    inflate_head(head, tmp_path / "small", tmp_path / "big head", width=width, depth=depth)
    small = guess(tmp_path / "small", name, head, **options)
    big = guess(tmp_path / "big", name, tmp_path / "big head", **options)
    assert small.num_nodes > 5
    assert torch.equal(big.tokens, small.tokens) and torch.equal(big.parents, small.parents)


def test_a_head_as_wide_as_its_network_is_refused(tmp_path):
    target = random_decoder(tiny_config(layers=3, tie=True), dtype=torch.float64)
    save_model(target, tmp_path / "small")
    (tmp_path / "head").mkdir()
    random_heads("lilicorr", **LILICORR | {"chain_size": 0})(target, tmp_path / "head")
    with pytest.raises(ConfigError, match="is as wide as the network"):
        inflate_head(tmp_path / "head", tmp_path / "small", tmp_path / "big", width=2, depth=3)


def test_an_exit_keeps_its_share_of_the_depth():
    assert [layers_after(done, 3, 9) for done in range(4)] == [0, 3, 6, 9]
    assert [layers_after(done, 9, 12) for done in (0, 4, 9)] == [0, 6, 12]
