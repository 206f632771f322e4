"""Trained models: the text that they are known to write."""

import pytest
import torch
from models.real_models import data_folder, greedy
from models.stories260k import write_stories260k

from outdraft.models.files.load import load_model

KNOWN = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to"
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tinystories_writes_what_transformers_writes(dtype):
    transformers = pytest.importorskip("transformers")
    folder = data_folder("tinystories-656k")
    ours = load_model(folder, dtype=dtype)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).to(ours.embedding.dtype).eval()
    generator = torch.Generator().manual_seed(0)
    for case in range(20 if dtype == "float32" else 3):
        prompt = [1, *torch.randint(3, 2048, (case,), generator=generator).tolist()]
        with torch.no_grad():
            expected = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=200, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        assert greedy(ours, prompt, 200) == expected[0, len(prompt) :].tolist(), prompt


@pytest.fixture(scope="module")
def stories260k(tmp_path_factory):
    """The llama2.c checkpoint as a Hugging Face directory, and its vocabulary."""
    out = tmp_path_factory.mktemp("stories260k")
    return out, write_stories260k(data_folder("stories260k"), out)


def test_stories260k_writes_its_known_text(stories260k):
    folder, pieces = stories260k
    model = load_model(folder)
    ids = greedy(model, [model.config.bos_id], 199)
    text = b"".join(bytes.fromhex(p[3:5].decode()) if p.startswith(b"<0x") else p for p in map(pieces.__getitem__, ids))
    assert text.decode().strip().startswith(KNOWN)
    assert len(text.decode().strip()) == 460
