"""A small draft of every sort for each row about heads in docs/files_of_others.md, with and without what it names."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch
from models.cases_of_files import Case, edit, tell

from outdraft.drafters.eagle3.formats import load_eagle3
from outdraft.drafters.hydra import formats as hydra
from outdraft.drafters.medusa import formats as medusa
from outdraft.drafters.mtp.by_name import to_speculators
from outdraft.drafters.mtp.net import load_mtp
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.models.networks.port import facts_of
from outdraft.testing.tiny import random_decoder, tiny_config

PLACES = Path(__file__).parents[1]
TAPS = "eagle_aux_hidden_state_layer_ids"
EAGLE3, HEAD3 = "EAGLE-3, config.json", "EAGLE-3, model.safetensors"
MTP, LAYER = "MTP, config.json", "MTP, model.safetensors"


def copied(name: str, directory: Path) -> None:
    shutil.copytree(PLACES / name, directory)


def of_eagle3(directory: Path) -> list[Any]:
    net = load_eagle3(directory, facts_of(random_decoder(tiny_config(layers=6, hidden=16, vocab=24))), torch.float32)
    return [net.config, sorted(name for name, _ in net.named_parameters())]


def save_eagle3_head(directory: Path) -> None:
    """The plain one of the peers, spelled as the original."""
    copied("peers/eagle3/plain", directory)
    raw = json.loads((directory / "config.json").read_text())
    told = {**raw["transformer_layer_config"], "draft_vocab_size": 16, "architectures": ["LlamaForCausalLMEagle3"]}
    (directory / "config.json").write_text(json.dumps({**told, "eagle_config": {TAPS: [0, 2, 4]}}))


def eagle3(*words: str, part: str | None = "eagle_config", **keys: Any) -> Case:
    return Case(
        write=save_eagle3_head,
        load=of_eagle3,
        words=words or tuple(keys),
        change=lambda place: tell(place, part=part, **keys),
    )


def of_mtp(directory: Path) -> Any:
    target = random_decoder(tiny_config(layers=2, hidden=16, vocab=24), dtype=torch.float32)
    return load_mtp(directory, target).config


def save_mtp(directory: Path) -> None:
    """The peers' layer in speculators' layout."""
    copied("peers/mtp", directory)
    edit(directory, lambda own: {to_speculators(name): one for name, one in own.items()})
    layers = json.loads((directory / "config.json").read_text())
    told = {"speculators_model_type": "mtp", "num_nextn_predict_layers": 1, "transformer_layer_config": layers}
    (directory / "config.json").write_text(json.dumps(told))


def has_tensor(directory: Path, name: str) -> None:
    """A tensor more."""
    edit(directory, lambda own: {**own, name: torch.ones(2)})


MTP_LAYER = partial(Case, write=save_mtp, load=of_mtp)


def of_heads(load: Any, layers: int, directory: Path) -> Any:
    target = random_decoder(tiny_config(layers=layers, hidden=16, heads=2, kv_heads=1, vocab=23), dtype=torch.float32)
    return load(directory, target, None).config


def published(name: str, load: Any, *words: str, **keys: Any) -> Case:
    return Case(
        write=partial(copied, f"drafters/published/{name}"),
        load=partial(of_heads, load, 2),
        words=words or tuple(keys),
        change=lambda place: tell(place, **keys),
    )


def without_differences(own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """t2d alone, which says one token less."""
    t2d = own["t2d"].clone()
    t2d[t2d.nonzero()[0]] = False
    return {**{name: one for name, one in own.items() if name != "d2t"}, "t2d": t2d}


def loses_head(directory: Path) -> None:
    edit(directory, lambda own: {name: one for name, one in own.items() if name != "lm_head.weight"})


HEADS = {
    (EAGLE3, f"eagle_config.{TAPS}"): eagle3(**{TAPS: [1, 2, 3]}),
    (EAGLE3, TAPS): eagle3("different taps", part=None, **{TAPS: [2, 3, 4]}),
    (EAGLE3, "aux_hidden_state_layer_ids"): eagle3(part=None, aux_hidden_state_layer_ids=[1, 2, 3]),
    (EAGLE3, "num_aux_hidden_states"): eagle3(
        "num_aux_hidden_states=4", f"eagle_config.{TAPS}", part=None, num_aux_hidden_states=4
    ),
    (EAGLE3, "eagle_config"): eagle3("no table", part=None, eagle_config=[{TAPS: [0, 2, 4]}]),
    (EAGLE3, "target_layer_ids"): eagle3("different taps", part=None, target_layer_ids=[1, 2, 3]),
    (EAGLE3, "eagle_config.use_aux_hidden_state"): eagle3(use_aux_hidden_state=False),
    **{
        (EAGLE3, f"{part}{flag}"): eagle3(part="eagle_config" if part else None, **{flag: True})
        for part in ("", "eagle_config.")
        for flag in ("norm_before_residual", "norm_output")
    },
    (EAGLE3, "a flag in both, not alike"): Case(
        write=save_eagle3_head,
        load=of_eagle3,
        words=("norm_output", "leave one out"),
        change=lambda at: (tell(at, norm_output=False), tell(at, part="eagle_config", norm_output=True)),
    ),
    (EAGLE3, "norm_before_fc, fc_norm"): eagle3(part=None, norm_before_fc=True, fc_norm=True),
    **{
        (EAGLE3, f"eagle_config.{key}"): eagle3(**{key: value})
        for key, value in {
            "use_input_layernorm_in_first_layer": False,
            "use_last_layernorm": False,
            "use_mtp_layernorm": True,
            "next_layer_regular": False,
            "parallel_draft_step": 2,
        }.items()
    },
    (EAGLE3, "layer_types"): eagle3("sliding windows", part=None, layer_types=["sliding_attention"]),
    (EAGLE3, "draft_vocab_size"): eagle3(part=None, draft_vocab_size=15),
    (EAGLE3, "eagle_config, any other key"): eagle3(warp=3),
    (EAGLE3, "any other key"): eagle3(part=None, warp=3),
    (EAGLE3, "any other key, of speculators"): Case(
        write=partial(copied, "peers/eagle3/plain"),
        load=of_eagle3,
        words=("eagle3", "warp"),
        change=lambda at: tell(at, warp=3),
    ),
    (HEAD3, "no lm_head.weight"): Case(write=save_eagle3_head, change=loses_head, load=of_eagle3),
    (HEAD3, "t2d without d2t"): Case(
        write=save_eagle3_head,
        load=of_eagle3,
        words=("t2d is of 15 tokens", "(draft_vocab_size) asks for 16"),
        change=lambda at: edit(at, without_differences),
    ),
    (HEAD3, "two names of one tensor"): Case(
        write=save_eagle3_head,
        load=of_eagle3,
        words=("norm.weight", "model.norm.weight"),
        change=lambda at: has_tensor(at, "model.norm.weight"),
    ),
    (MTP, "num_nextn_predict_layers"): MTP_LAYER(
        words=("num_nextn_predict_layers=3", "holds 1"), change=lambda at: tell(at, num_nextn_predict_layers=3)
    ),
    (MTP, "any other key"): MTP_LAYER(words=("mtp", "warp"), change=lambda at: tell(at, warp=3)),
    (LAYER, "embed_tokens.weight, lm_head.weight"): MTP_LAYER(
        words=("lm_head.weight", "the target's own"), change=lambda at: has_tensor(at, "lm_head.weight")
    ),
    (LAYER, "mtp_layers.1"): MTP_LAYER(
        words=("mtp_layers.1.input_proj",), change=lambda at: has_tensor(at, "mtp_layers.1.input_proj.weight")
    ),
    ("EAGLE-1, config.json", "bias"): published("eagle1", load_last_feature, "fc.bias", bias=False),
    ("EAGLE-1, config.json", "any other key"): published("eagle1", load_last_feature, warp=3),
    ("Medusa, config.json", "medusa_num_heads"): published("medusa", medusa.load, medusa_num_heads=7),
    ("Medusa, config.json", "medusa_num_layers"): published("medusa", medusa.load, medusa_num_layers=7),
    ("Hydra, config.json", "hydra_num_heads"): published("hydra", hydra.load, hydra_num_heads=7),
    ("Hydra, config.json", "hydra_num_layers"): published("hydra", hydra.load, hydra_num_layers=7),
    ("Hydra, config.json", "hydra_head_arch"): published("hydra", hydra.load, hydra_head_arch="eagle"),
    ("Hydra, config.json", "grounded_heads"): published("hydra", hydra.load, grounded_heads=False),
    ("Hydra, config.json", "hidden_state_offset"): published("hydra", hydra.load, hidden_state_offset=1),
    ("Hydra, config.json", "rope_theta"): published("hydra_prefix", hydra.load, rope_theta=77.0),
    ("Hydra, config.json", "rms_norm_eps"): published("hydra_prefix", hydra.load, rms_norm_eps=0.5),
    ("Hydra, config.json", "rope_scaling"): published(
        "hydra_prefix", hydra.load, rope_scaling={"rope_type": "linear", "factor": 2.0}
    ),
    ("Hydra, config.json", "any other key"): published("hydra", hydra.load, warp=3),
}
