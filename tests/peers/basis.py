"""What the scripts of this folder share that run released modules. Its name sorts before theirs: it is imported first.

Data in: a module of theirs; data out: random weights that leave no part idle, a target beside it, and the same network
as outdraft writes it again, opened there.
"""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

find_spec = importlib.util.find_spec
for name in ("torchvision", "torchaudio"):  # may be built for another torch, and nothing here looks or listens
    sys.modules[name] = None  # type: ignore[assignment]
importlib.util.find_spec = lambda name, *rest: None if name in ("torchvision", "torchaudio") else find_spec(name, *rest)

import torch  # noqa: E402

from outdraft.models.files.load import save_model  # noqa: E402
from outdraft.models.networks.base import Decoder, initialise  # noqa: E402
from outdraft.models.networks.config import llama_config  # noqa: E402


@torch.no_grad()
def randomise(model: Any, seed: int) -> Any:
    """Norms around 1, matrices that keep the size of what they read."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape)
        parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)
    return model.eval()


def named(algorithm: str, num_tokens: int) -> Any:
    """What every configuration of speculators says of its draft."""
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    return SpeculatorsConfig(
        algorithm=algorithm,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=num_tokens)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=None, architectures=[]),
    )


def say_two_of_three(model: Any, vocab_size: int, draft_vocab_size: int) -> None:
    """The draft's tokens are all but every third of the target's."""
    kept = torch.tensor([i for i in range(vocab_size) if i % 3 != 2])
    t2d = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, kept, True)
    model.load_vocab_mappings(t2d, kept - torch.arange(draft_vocab_size))


def saved(model: Any, place: Path) -> None:
    """As the package writes it, without its code."""
    model.save_pretrained(place)
    for one in place.glob("*.py"):
        one.unlink()


def target_of(vocab_size: int, width: int, num_layers: int = 6, **more: Any) -> Decoder:
    """A target of these sizes, for its tables."""
    target = Decoder(
        llama_config(
            vocab_size=vocab_size,
            hidden_size=width,
            num_layers=num_layers,
            num_heads=2,
            intermediate_size=8,
            max_len=64,
            **more,
        )
    )
    initialise(target, 0)
    return target


def reopened(model_type: Any, save: Callable[[Path], None], target: Decoder, directory: Path) -> Any:
    """What `save` writes, opened by speculators beside this target."""
    from speculators.models.attention import create_float_mask

    ours = directory / "ours"
    save_model(target, directory / "target")
    save(ours)
    told = json.loads((ours / "config.json").read_text())
    told["speculators_config"]["verifier"]["name_or_path"] = str(directory / "target")
    (ours / "config.json").write_text(json.dumps(told))
    again = model_type.from_pretrained(ours)
    again._attn_impl = again.config.transformer_layer_config._attn_implementation = "eager"
    again._create_mask_fn = create_float_mask
    return again.eval()
