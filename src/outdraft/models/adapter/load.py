"""A Hugging Face directory to a `TransformersNetwork`: its weights loaded once, one pass looked at, then tried.

    `read_plan` -> weights -> one pass (`anatomy`) -> trials (`check`)

Only transformers' own code is run, and only safetensors are read.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from outdraft.models.adapter.anatomy import Anatomy, dissect
from outdraft.models.adapter.attention import NAME, register
from outdraft.models.adapter.check import TrialTexts, check_network, find_exact, make_trial
from outdraft.models.adapter.library import first_line, quiet
from outdraft.models.adapter.network import TransformersNetwork
from outdraft.models.adapter.plan import AdapterPlan, read_plan
from outdraft.models.files.load import named_dtype
from outdraft.models.files.misfit import CURE, refuse_misfit
from outdraft.models.files.wrapper import OTHERS, TEXT
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError, OutdraftError
from outdraft.weights.safetensors import INDEX, TensorStore

_KEYS = {f"^{re.escape(there)}": here for there, here in TEXT.items() if there != here}  # of a text model in a wrapper

_log = logging.getLogger(__name__)


def load_adapted(
    path: Path, dtype: str | torch.dtype | None, device: torch.device, *, exact: bool = True
) -> TransformersNetwork:
    """The model in this directory, by transformers' own code. `dtype` as for `load_model`.

    exact: keep rows apart where that can be proven (`check.find_exact`); on a CPU only.

    Raises `ModelLoadError` naming what cannot be run, before weights are read where config.json or their class shows.
    """
    wanted = named_dtype(dtype)
    plan = read_plan(path)
    if plan.cut:
        _log.warning(
            "%s is limited to %d tokens through transformers: in longer texts its rotary frequencies (%s) would change "
            "with the length of a pass",
            plan.kind,
            plan.max_len,
            plan.cut,
        )
    with quiet(plan.library):
        model = _read_weights(plan, wanted).to(device)
        try:
            network, trial = _tried(model, plan)
            if exact and device.type == "cpu" and not find_exact(network, trial):
                _log.warning(
                    "%s: the numbers of a row depend on the other rows of its pass (%s), so where two tokens are "
                    "almost equally probable, the text may differ from that of plain decoding (docs/exactness.md)",
                    plan.kind,
                    ", ".join(sorted(network.unknown)) or "a trial shows it",
                )
            return network
        except OutdraftError:
            raise
        except Exception as error:  # transformers raises many kinds; each means the same to us
            raise ModelLoadError(
                f"model_type={plan.kind!r} cannot be run: {plan.made.__name__} of {plan.library_name} failed on a few "
                f"tokens ({type(error).__name__}: {first_line(error)})"
            ) from error


def _read_weights(plan: AdapterPlan, dtype: torch.dtype | None) -> Any:
    """The model. Raises `ModelLoadError` for files that cannot be read, and for weights that lack."""
    register(plan.library)
    _refuse_copies(plan.path)
    try:
        model, told = plan.made.from_pretrained(
            plan.path,
            config=plan.config,
            dtype="auto" if dtype is None else dtype,
            attn_implementation=NAME,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **({"key_mapping": _KEYS} if plan.wrapped else {}),
        )
    except Exception as error:  # likewise
        raise ModelLoadError(f"{plan.path} cannot be read by {plan.library_name}: {first_line(error)}") from error
    _require_all(plan.path, told)
    if any("expert" in type(part).__name__.lower() for part in model.modules()):
        model.set_experts_implementation("eager")
    return model.eval().requires_grad_(False)


def _refuse_copies(path: Path) -> None:
    """Raise `ModelLoadError` where transformers, which reads whole shards, may read what the index places elsewhere."""
    store = TensorStore(path)
    if copies := [name for name in store.copies if name in store]:
        raise ModelLoadError(
            f"{path} holds the tensor '{copies[0]}' in more files than {INDEX} says, and transformers would read "
            "either: remove the shard that does not belong there"
        )


def _require_all(path: Path, told: Mapping[str, Any]) -> None:
    """Raise `ModelLoadError` naming what transformers left at random, or did not use."""
    shapes = sorted(str(one[0] if isinstance(one, tuple) else one) for one in told.get("mismatched_keys", ()))
    if shapes:
        raise ModelLoadError(f"{path}: tensor '{shapes[0]}' has another shape than config.json asks for: {CURE}")
    strange = (name for name in told.get("unexpected_keys", ()) if not name.startswith(OTHERS))
    refuse_misfit(path, told.get("missing_keys", ()), strange)


@torch.inference_mode()
def _tried(model: Any, plan: AdapterPlan) -> tuple[TransformersNetwork, TrialTexts]:
    """A network that passed its trial, and the trial. Raises `ModelLoadError` for one that did not."""
    table = model.get_input_embeddings().weight
    trial = make_trial(len(table), table.device)
    anatomy = dissect(model, plan.kind, trial.base)
    network = TransformersNetwork(model, _describe(model, plan, anatomy), anatomy)
    network.reads_ids = _reads_ids(network, plan, trial)
    check_network(network, trial)
    return network, trial


def _describe(model: Any, plan: AdapterPlan, anatomy: Anatomy) -> ModelConfig:
    """What the engine and the drafters ask of a model."""
    config, shape = plan.config, anatomy.shape
    width = model.get_output_embeddings().weight.shape[1]
    return ModelConfig(
        architecture=plan.kind,
        vocab_size=model.get_output_embeddings().weight.shape[0],
        hidden_size=getattr(config, "hidden_size", width),
        num_layers=len(anatomy.layers),
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=_one(getattr(config, "intermediate_size", None)) or 4 * width,
        max_len=plan.max_len,
        norm_eps=getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or 1e-5,
        windows=anatomy.windows,
        bos_id=_one(getattr(config, "bos_token_id", None)),
        eos_ids=plan.ends,
    )


def _one(value: Any) -> int | None:
    """A number, or the first of a list of them."""
    value = value[0] if isinstance(value, list | tuple) and value else value
    return value if isinstance(value, int) else None


def _reads_ids(network: TransformersNetwork, plan: AdapterPlan, trial: TrialTexts) -> bool:
    """Whether embeddings alone give other states than ids do, or make their decoder search the ids out."""
    ids, places = trial.base, torch.arange(len(trial.base), device=trial.base.device)
    states = []
    for network.reads_ids in (False, True):
        context = CausalContext(1, len(ids))
        states.append(network.run(network.embed(ids, places), places, context).hidden)
    return bool(getattr(plan.config, "hidden_size_per_layer_input", 0)) or not torch.equal(*states)
