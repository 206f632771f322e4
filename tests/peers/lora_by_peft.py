"""LoRA adapters that PEFT writes and merges, on tiny models (`tests/models/test_peft_lora.py`), and ours in PEFT.

Run in an environment that has `peft` (0.21.2), transformers and what outdraft needs, once:

    PYTHONPATH=src python tests/peers/lora_by_peft.py

It writes `tests/peers/lora/base/<architecture>/`, a model, and `tests/peers/lora/<variant>/`: an adapter for one by
`save_pretrained`, and numbers.safetensors with tokens and the logits of PEFT's merged model. Then it merges each with
outdraft, and says how far the logits are apart; and for every architecture it opens an adapter that outdraft wrote with
`PeftModel`, and says how far that is from outdraft's own merged target.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.remake import lora_config
from outdraft.models.remake.lora import FOLDER, merged, new_lora, save_lora
from outdraft.models.remake.merge import merge_lora
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import TINY_ARCHITECTURES, random_decoder
from tests.helpers.tiny_families import TINY_FAMILIES, tiny_config

HERE, TOKENS = Path(__file__).parent / "lora", torch.tensor([3, 11, 7, 0, 19, 5, 5, 22, 14, 1])
SIZES: dict[str, Any] = {"vocab": 24, "hidden": 16, "heads": 2, "inner": 24, "max_len": 32}
PATTERNS: dict[str, Any] = {
    "rank_pattern": {"layers.1.self_attn.v_proj": 2, r"model\.layers\.0\.mlp\.(gate|up)_proj": 6, "down_proj": 3},
    "alpha_pattern": {"^model.layers.0.self_attn.q_proj": 5, "up_proj": 20, "k_proj": 1},
}
LLAMA = {"r": 4, "lora_alpha": 7, "target_modules": "all-linear", **PATTERNS}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "patterns": ("llama", LLAMA),
    "rslora": ("llama", {**LLAMA, "use_rslora": True, "init_lora_weights": "gaussian"}),
    "some": ("phi3", {"r": 3, "lora_alpha": 6, "target_modules": ["qkv_proj", "lm_head"]}),
    "some_layers": ("cohere2", {"r": 2, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1]}),
    "conv1d": ("gpt2", {"r": 3, "lora_alpha": 6, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
    "interleaved": ("gpt_neox", {"r": 3, "target_modules": ["query_key_value", "dense_h_to_4h"]}),
}


def base(architecture: str, directory: Path) -> None:
    """A random model."""
    kv_heads = 1 if architecture == "llama" else 2
    save_model(random_decoder(tiny_config(architecture, kv_heads=kv_heads, **SIZES), dtype=torch.float32), directory)


def theirs(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype="float32").eval()


def logits_of(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(TOKENS[None]).logits[0]
    return found


def ours(decoder: Decoder) -> Tensor:
    return decoder(TOKENS, torch.arange(len(TOKENS)), CausalContext(1, len(TOKENS)))


def write(variant: str) -> None:
    (architecture, options), place = VARIANTS[variant], HERE / variant
    home = HERE / "base" / architecture
    base(architecture, home)
    config = LoraConfig(task_type="CAUSAL_LM", **{"init_lora_weights": False, **options})
    plain = logits_of(theirs(home))
    torch.manual_seed(sum(map(ord, variant)))
    model = get_peft_model(theirs(home), config)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "lora_" in name:
                one.normal_(std=0.3)
    model.peft_config["default"].base_model_name_or_path = architecture  # a directory of `base`
    model.save_pretrained(place, save_embedding_layers=False)
    (place / "README.md").unlink(missing_ok=True)
    logits = logits_of(model.merge_and_unload())
    save_file({"tokens": TOKENS, "logits": logits}, place / "numbers.safetensors")
    with tempfile.TemporaryDirectory() as out:
        merge_lora(str(home), str(place), Path(out))
        far, moved = (float((one - logits).abs().max()) for one in (ours(load_model(out)), plain))
    print(f"{variant}: {far:.1e} from PEFT's merged model, which is {moved:.2f} from its base")


def open_ours(architecture: str) -> None:
    """An adapter that outdraft wrote, in PEFT."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        base(architecture, home / "base")
        target = load_model(home / "base")
        lora = new_lora(target, lora_config.LoraConfig(rank=3, alpha=5.0), seed=1)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for one in lora.parameters():
                one += 0.3 * torch.randn(one.shape, generator=generator)
        save_lora(lora, target, home)
        model, said = PeftModel.from_pretrained(theirs(home / "base"), home / FOLDER), ours(merged(target, lora))
        far, moved = (float((one - said).abs().max()) for one in (logits_of(model), ours(target)))
        pairs = json.loads((home / FOLDER / "adapter_config.json").read_text())["target_modules"]
    print(f"{architecture}: PEFT's logits {far:.1e} from ours, moved by {moved:.2f} ({', '.join(pairs)})")


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    for variant in VARIANTS:
        write(variant)
    for architecture in (*TINY_ARCHITECTURES, *TINY_FAMILIES):
        if not architecture.startswith("gemma"):  # transformers refuses the tiny one's query_pre_attn_scalar, 6.25
            open_ours(architecture)
