"""Tiny block networks as llama.cpp's own converter writes them in GGUF files: what outdraft reads is the same network.

    PYTHONPATH=src python tests/peers/blocks_by_llama_cpp.py CHECKOUT_OF_ggml-org/llama.cpp

It converts the directories of `tests/peers/blocks` whose layout the converter takes, reads both, and says how far the
logits of all slots are from those of the released module (`numbers.safetensors`). Nothing is kept: the files that
tests read are written by `tests/drafters/block_gguf.py`, by the same names. The vocabulary is a stand-in.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import torch  # noqa: E402
from drafters.test_blocks import PEERS, farthest, target_of  # noqa: E402

from outdraft.core.learner_registry import find_learner  # noqa: E402
from outdraft.weights.safetensors import read_tensors  # noqa: E402

VOCAB = 24


def add_words(self: Any) -> None:
    """In place of the converter's reading of a tokenizer."""
    writer = self.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}".encode() for i in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def main(checkout: Path) -> None:
    """All variants that the converter takes."""
    sys.path[:0] = [str(checkout), str(checkout / "gguf-py")]
    conversion, gguf = importlib.import_module("conversion"), importlib.import_module("gguf")
    target = Path(tempfile.mkdtemp())
    (target / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    conversion.get_model_class("Qwen3ForCausalLM").set_vocab = add_words
    for place in sorted(PEERS.iterdir()):
        told = json.loads((place / "config.json").read_text())
        out = target / f"{place.name}.gguf"
        try:
            converter = conversion.get_model_class(told["architectures"][0])
            converter(place, gguf.LlamaFileType.ALL_F32, out, target_model_dir=target).write()
        except Exception as error:
            sys.stdout.write(f"{place.name}: not taken by the converter ({error!r})\n")
            continue
        said = read_tensors(place / "numbers.safetensors")
        method = find_learner(place.name.partition("_")[0])
        with torch.no_grad():
            far = farthest(method.load(method.options(), target_of(said), out), said)
        sys.stdout.write(f"{place.name}: {far:.1e} apart\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
