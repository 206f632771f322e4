"""Drafters that have a native form, with their networks, on a target that the kernels hold."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch
from contracts.sides import randomise

from outdraft.drafters.dflash import KIND as DFLASH
from outdraft.drafters.dflash2 import KIND as DFLASH2
from outdraft.drafters.dflash2.net import Dflash2Sizes
from outdraft.drafters.dspark import KIND as DSPARK
from outdraft.drafters.dspark.net import DsparkSizes
from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.drafters.eagle3.formats import save_eagle3
from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead, save_exit_head
from outdraft.drafters.kangaroo.net import KangarooAdapter, KangarooConfig, save_adapter
from outdraft.drafters.mtp.net import MtpConfig, MtpNet, save_mtp
from outdraft.drafters.p_eagle.formats import save_p_eagle
from outdraft.drafters.shared.blocks.net import BlockConfig
from outdraft.drafters.shared.features.fused.net import FusedConfig, FusedNet
from outdraft.drafters.shared.features.last_feature import LastFeatureConfig, LastFeatureNet, save_last_feature
from outdraft.drafters.shared.features.learn import LayerLearning
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.testing.spec_table import DrafterRow

like_target = LayerLearning().layers


def small(vocab: int, *, seed: int = 1) -> Decoder:
    config = llama_config(
        vocab_size=vocab, hidden_size=64, num_layers=3, num_heads=2, num_kv_heads=1, intermediate_size=96, max_len=512
    )
    return initialise(Decoder(config), seed, std=0.25).bfloat16().requires_grad_(False).eval()


@cache
def wide(vocab: int) -> Decoder:
    """The same through PyTorch in float32."""
    decoder = small(vocab).float()
    decoder.set_exact(True)
    return decoder


def twin(target, directory: Path):
    """The target but for a little noise."""
    other = small(target.config.vocab_size)
    generator = torch.Generator().manual_seed(3)
    for weight in other.parameters():
        weight += (torch.randn(weight.shape, generator=generator) * 0.1 * weight.float().std()).bfloat16()
    save_model(other, directory / "twin")
    return {"model": str(directory / "twin")}


def exit_head(target, directory: Path):
    head = EarlyExitHead(EarlyExitConfig(exit_layer=2, hidden_size=64, inner_size=96), torch.bfloat16)
    randomise(head, seed=7)
    save_exit_head(head, directory / "exit")
    return {"model": str(directory / "exit")}


def last_tokens(target, share):
    """So many of the last tokens of the target's vocabulary; None: all."""
    return None if share == 1 else torch.arange(target.config.vocab_size)[-int(target.config.vocab_size * share) :]


def kangaroo_adapter(target, *, share=1.0, head_dim=32) -> KangarooAdapter:
    """With another norm's epsilon than the target's."""
    vocab = last_tokens(target, share)
    config = KangarooConfig(
        exit_layer=2,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=head_dim,
        norm_eps=1e-3,
        draft_vocab_size=0 if vocab is None else len(vocab),
    )
    adapter = KangarooAdapter(config, torch.bfloat16, vocab=vocab)
    randomise(adapter, seed=15)
    return adapter


def exit_adapter(target, directory: Path, *, share=1.0):
    save_adapter(kangaroo_adapter(target, share=share), directory / "adapter", target.config.vocab_size)
    return {"model": str(directory / "adapter")}


def eagle_net(target, directory: Path, *, share=1.0):
    vocab = last_tokens(target, share)
    config = EagleConfig(
        taps=(0, 2),
        hidden_size=64,
        vocab_size=target.config.vocab_size,
        draft_vocab_size=0 if vocab is None else len(vocab),
        num_heads=2,
        num_kv_heads=1,
        head_dim=32,
        intermediate_size=96,
        max_len=512,
    )
    net = EagleNet(config, small(target.config.vocab_size), torch.bfloat16, vocab=vocab)
    randomise(net, seed=8)
    save_eagle(net, directory / "eagle")
    return {"model": str(directory / "eagle")}


def last_feature_net(target, directory: Path, *, bias=True, own_embedding=False, share=1.0):
    """EAGLE-1's, of two layers, with another norm's epsilon than the target's."""
    layers = replace(like_target(target.config, num_layers=2), norm_eps=1e-3)
    config = LastFeatureConfig(layers=layers, tap=3, bias=bias, own_embedding=own_embedding)
    net = LastFeatureNet(config, small(target.config.vocab_size), torch.bfloat16, vocab=last_tokens(target, share))
    randomise(net, seed=11)
    save_last_feature(net, directory / "last")
    return {"model": str(directory / "last")}


def mtp_net(target, directory: Path, *, share=1.0):
    layers = replace(like_target(target.config, num_layers=2, qk_norm=True), norm_eps=1e-3)
    config, vocab = MtpConfig(layers=layers, tap=3), last_tokens(target, share)
    net = MtpNet(config, small(target.config.vocab_size), torch.bfloat16, vocab=vocab)
    randomise(net, seed=12)
    save_mtp(net, directory / "mtp")
    return {"model": str(directory / "mtp")}


def eagle3_net(target, directory: Path, *, share=1.0, num_layers=1, width=64, taps=(0, 2), **flags):
    """EAGLE-3's in the published layout. `share`: of the target's tokens that it knows. `width`: of its own."""
    size = max(2, int(target.config.vocab_size * share))
    layers = replace(like_target(target.config, num_layers=num_layers), hidden_size=width, norm_eps=1e-3)
    config = FusedConfig(
        layers=layers, taps=taps, draft_vocab_size=size, target_hidden_size=64, own_embedding=width != 64, **flags
    )
    vocab = None if share == 1 else torch.arange(target.config.vocab_size)[-size:]
    net = FusedNet(config, torch.bfloat16, torch.device("cpu"), vocab)
    randomise(net, seed=13)
    save_eagle3(net, directory / "eagle3")
    return {"model": str(directory / "eagle3")}


def published(**flags):
    return partial(eagle3_net, **flags)


def p_eagle_net(target, directory: Path, *, num_layers=1, own_embedding=False, **flags):
    layers = replace(like_target(target.config, num_layers=num_layers), norm_eps=1e-3)
    config = FusedConfig(
        layers=layers,
        taps=(0, 2),
        draft_vocab_size=target.config.vocab_size,
        target_hidden_size=64,
        own_embedding=own_embedding,
        mask_token_id=3,
        num_depths=4,
        **flags,
    )
    net = FusedNet(config, torch.bfloat16, torch.device("cpu"))
    randomise(net, seed=14)
    save_p_eagle(net, directory / "p_eagle")
    return {"model": str(directory / "p_eagle")}


def block_net(kind, target, directory: Path, *, own=None, windows=(), norm="rms", vocab=None, **flags):
    """A block network. `vocab`: of the target's tokens it has the last ones, where the target has more."""
    config = target.config
    vocab = vocab if vocab is None or vocab < config.vocab_size else None
    layers = replace(like_target(config, num_layers=2, qk_norm=True), norm_eps=1e-3, windows=windows, norm=norm)
    block = BlockConfig(
        layers=layers,
        taps=(0, 2),
        target_hidden_size=64,
        block_size=5,
        mask_token_id=3,
        draft_vocab_size=vocab or config.vocab_size,
        **flags,
    )
    ids = None if vocab is None else torch.arange(config.vocab_size)[-vocab:]
    net = kind.net(block, own, torch.bfloat16, torch.device("cpu"), ids)
    randomise(net, seed=15)
    kind.save(net, directory / "block")
    return {"model": str(directory / "block")}


CHAIN = {"width": 1, "sample": "match", "quantization": "none"}
TREE = {"width": 2, "sample": "match", "quantization": "none"}
FEATURES = [
    DrafterRow(drafter="eagle", label="chain", side=eagle_net, options=CHAIN),
    DrafterRow(drafter="eagle", label="tree", side=eagle_net, options=TREE),
    DrafterRow(drafter="mtp", label="chain", side=mtp_net, options=CHAIN),
    DrafterRow(drafter="mtp", label="tree", side=mtp_net, options=TREE),
    DrafterRow(drafter="eagle", label="tree, fewer tokens", side=partial(eagle_net, share=0.7), options=TREE),
    DrafterRow(drafter="mtp", label="chain, fewer tokens", side=partial(mtp_net, share=0.7), options=CHAIN),
    DrafterRow(drafter="hass", label="chain, fewer tokens", side=partial(last_feature_net, share=0.7), options=CHAIN),
    DrafterRow(drafter="eagle1", label="chain", side=last_feature_net, options=CHAIN),
    DrafterRow(drafter="eagle1", label="tree", side=partial(last_feature_net, own_embedding=True), options=TREE),
    DrafterRow(drafter="hass", label="chain", side=partial(last_feature_net, bias=False), options=CHAIN),
    DrafterRow(drafter="eagle3", label="chain", side=published(), options=CHAIN),
    DrafterRow(drafter="eagle3", label="tree", side=published(num_layers=2, norm_before_residual=True), options=TREE),
    DrafterRow(
        drafter="eagle3",
        label="chain of 3.1, fewer tokens",
        side=published(share=0.7, fc_norm=True, norm_output=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="eagle3",
        label="tree of another width, one tap norm",
        side=published(width=96, norm_before_fc=True, norm_output=True),
        options=TREE,
    ),
    DrafterRow(drafter="p_eagle", label="chain", side=p_eagle_net, options=CHAIN),
    DrafterRow(
        drafter="p_eagle",
        label="tree",
        side=partial(p_eagle_net, num_layers=2, own_embedding=True, fc_norm=True),
        options=TREE,
    ),
    DrafterRow(drafter="eagle3", label="tree under the target's head", side=published(own_head=False), options=TREE),
    DrafterRow(
        drafter="eagle3",
        label="chain on one state under the target's head, fewer tokens",
        side=published(own_head=False, one_state=True, taps=(3,), share=0.7),
        options=CHAIN,
    ),
]
BLOCKS = [
    DrafterRow(drafter="dflash", label="chain", side=partial(block_net, DFLASH), options=CHAIN),
    DrafterRow(
        drafter="dflash",
        label="tree that sees a window, own embeddings and head, fewer tokens, fewer slots",
        side=partial(block_net, DFLASH, windows=(3, 3), own_embedding=True, own_head=True, vocab=40),
        options={**TREE, "runtime_block_size": 3},
    ),
    DrafterRow(
        drafter="dflash",
        label="chain of causal slots, fewer tokens of the target's head",
        side=partial(block_net, DFLASH, causal=True, vocab=40),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash",
        label="chain on bytes",
        side=partial(block_net, DFLASH, own_head=True),
        options={**CHAIN, "quantization": "int8"},
    ),
    DrafterRow(
        drafter="dflash",
        label="chain of a mask of its own",
        side=partial(block_net, DFLASH, own_mask=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash2",
        label="chain",
        side=partial(block_net, DFLASH2, own=Dflash2Sizes(selector_rank=32, selector_top_k=8)),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash2",
        label="tree, fewer tokens, fewer slots",
        side=partial(block_net, DFLASH2, own=Dflash2Sizes(selector_rank=32, selector_top_k=8), vocab=40),
        options={**TREE, "runtime_block_size": 3},
    ),
    DrafterRow(
        drafter="dspark",
        label="chain",
        side=partial(block_net, DSPARK, own=DsparkSizes(rank=32), from_anchor=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dspark",
        label="tree of a recurrent head, own head",
        side=partial(block_net, DSPARK, own=DsparkSizes(head="rnn", rank=32), own_head=True, vocab=40),
        options=TREE,
    ),
    DrafterRow(
        drafter="dflash", label="chain of norms of 1 + w", side=partial(block_net, DFLASH, norm="rms32"), options=CHAIN
    ),
    DrafterRow(
        drafter="dflash",
        label="chain of sinks and scaled values, which PyTorch runs",
        side=partial(block_net, DFLASH, sinks=True, value_scale=0.6),
        options=CHAIN,
    ),
]
ROWS = [
    DrafterRow(drafter="draft_model", side=twin, options={"quantization": "none"}),
    DrafterRow(drafter="early_exit", side=exit_head),
    DrafterRow(drafter="early_exit", label="plain", options={"exit_layer": 2}),
    DrafterRow(drafter="kangaroo", side=exit_adapter),
    DrafterRow(drafter="kangaroo", label="fewer tokens", side=partial(exit_adapter, share=0.7)),
    DrafterRow(drafter="draft_verify", options={"skip_attention": (1,), "skip_mlp": (2,)}),
    DrafterRow(drafter="magicdec", options={"select": "snapkv", "budget": 6, "observe": 3, "refresh": 4}),
    *FEATURES,
    *BLOCKS,
]
