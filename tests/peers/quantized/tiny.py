"""The tiny Llama that each `by_*.py` of this folder rounds with one package's own code, and what is recorded of it.

A recorded folder holds

    config.json           as the package wrote it, or with the settings that its programs write
    model.safetensors     the tensors as the package packed them; its metadata names the package and the version
    numbers.safetensors   `whole.NAME`: the weight of one map as the *package's own* code makes it whole again, float32;
                          `ids` and `logits`: transformers' Llama in float32 with all weights made whole so

Some rows are all positive or all negative in their first inputs, so that zero points at both ends of their range occur:
that is where programs differ.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

VOCAB, WIDTH, GROUP, LENGTH, SEED = 64, 64, 32, 12, 0
SHOWN = ("model.layers.0.self_attn.k_proj",)


def config(**changes: Any) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        **dict(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=True,
        )
        | changes
    )


@torch.no_grad()
def model() -> transformers.LlamaForCausalLM:
    """The model before rounding: float32, of numbers that bfloat16 holds."""
    torch.manual_seed(SEED)
    made = transformers.LlamaForCausalLM(config()).eval()
    for name, weight in made.named_parameters():
        weight.add_(torch.randn_like(weight) * (0.2 if weight.dim() == 2 else 0.1))
        if name.endswith("_proj.weight"):
            weight[3:6, :GROUP].abs_()
            weight[7, :GROUP].abs_().neg_()
        weight.copy_(weight.bfloat16().float())
    return made


def maps(made: torch.nn.Module) -> dict[str, torch.nn.Linear]:
    """What is rounded: every linear map of the layers."""
    return {name: one for name, one in made.named_modules() if isinstance(one, torch.nn.Linear) and "layers" in name}


def texts(count: int = 16, length: int = 32) -> list[list[int]]:
    """Texts to calibrate on."""
    source = torch.Generator().manual_seed(SEED + 5)
    return [torch.randint(VOCAB, (length,), generator=source).tolist() for _ in range(count)]


def save_plain(folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """The model before rounding as a directory, with a stand-in tokenizer (some packages ask for one)."""
    shutil.rmtree(folder, ignore_errors=True)
    model().to(dtype).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", pad_token="t0")
    fast.save_pretrained(folder)
    return folder


@torch.no_grad()
def record(
    out: Path, package: str, written: dict[str, Any], packed: dict[str, torch.Tensor], whole: dict[str, torch.Tensor]
) -> None:
    """Save what a package made.

    written: its config.json; packed: its file; whole: [out, in] by the name of each map, by the package's own code.
    """
    made = model()
    for name, one in maps(made).items():
        assert whole[name].shape == one.weight.shape, name
        error = (whole[name].float() - one.weight).abs().mean() / one.weight.abs().mean()
        assert error < 0.2, f"{out.name}: {name} is off by {error:.3f} of its size"
        one.weight.copy_(whole[name].float())
    ids = torch.randint(VOCAB, (1, LENGTH), generator=torch.Generator().manual_seed(SEED + 1))
    numbers = {"ids": ids[0], "logits": made(ids).logits[0].contiguous()}
    numbers |= {f"whole.{name}": whole[name].float().contiguous() for name in SHOWN}
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for key in ("offload_to_disk_path", "uri"):  # where it was made says nothing
        written.get("quantization_config", {}).get("meta", {}).pop(key, None)
    (out / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    about = {"format": "pt", "made_by": package, "seed": str(SEED), "torch": torch.__version__}
    plain = {name: one for name, one in model().state_dict().items() if name not in packed and name != "lm_head.weight"}
    plain = {name: one.bfloat16() for name, one in plain.items() if f"{name.removesuffix('.weight')}" not in whole}
    save_file({**plain, **{name: one.contiguous() for name, one in packed.items()}}, out / "model.safetensors", about)
    save_file(numbers, out / "numbers.safetensors", about)
    print(out.name, sum(path.stat().st_size for path in out.iterdir()), "bytes")


def saved(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """config.json and the tensors of a directory that a package wrote."""
    (path,) = folder.rglob("*.safetensors")
    return json.loads((path.parent / "config.json").read_text()), load_file(path)
