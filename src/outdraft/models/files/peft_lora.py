"""A LoRA adapter in PEFT's files: read, whatever wrote it, and written.

    adapter_config.json         r, lora_alpha, ...
    adapter_model.safetensors   base_model.model.MODULE.lora_A.weight [r, in] and lora_B.weight [out, r], float

    MODULE's W [out, in]  ->  W + scale B A        scale = lora_alpha / r, or with use_rslora lora_alpha / sqrt(r)

Which modules have a change, the tensors say; what the config says of training is not looked at, and what would change
more than that sum is refused. Hu et al., "LoRA", 2021, https://arxiv.org/abs/2106.09685; Kalajdzievski, "A rank
stabilization scaling factor for fine-tuning with LoRA", 2023, https://arxiv.org/abs/2312.03732.
"""

import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import OFF
from outdraft.models.families.shared.naming import HEAD, Entry, Layout, is_linear
from outdraft.models.files.load import read_json
from outdraft.models.files.peft_adapter import ADAPTER, MERGE
from outdraft.models.files.wrapper import text_name
from outdraft.models.networks.config import ModelConfig
from outdraft.options.checked import check_fields
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import NamedTensors, open_tensors
from outdraft.weights.safetensors import save_tensors
from outdraft.weights.source import TensorSource

T = TypeVar("T")
_log = logging.getLogger(__name__)
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_READ = ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
_NEUTRAL: Mapping[str, tuple[object, ...]] = {  # key -> the values that leave W + scale B A as it is
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),  # others begin with another W: PiSSA's and kin
}
_NOT_LOOKED_AT = frozenset(  # of training, of which modules were chosen, and of how W lies in its own file
    """
    auto_mapping base_model_name_or_path eva_config exclude_modules fan_in_fan_out
    inference_mode layers_pattern layers_to_transform lora_dropout megatron_core peft_version qalora_group_size revision
    runtime_config target_modules task_type
    """.split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraPair:
    """The change of one stored matrix."""

    a: Tensor  # [r, in] float32
    b: Tensor  # [out, r] float32
    scale: float

    def change(self) -> Tensor:
        """[out, in] float32."""
        return self.scale * (self.b @ self.a)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeftLora:
    """An adapter, opened. Its keys are PEFT's; a pattern is a regular expression for the end of a module's name."""

    origin: Path
    base: object  # the model that it says that it is for
    r: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    modules: Mapping[str, str]  # by the names of a model of text alone -> as they stand in the file
    tensors: TensorSource

    def __post_init__(self) -> None:
        check_fields(self, of=str(self.origin / ADAPTER), error=ModelLoadError, only=_READ)

    def pair(self, module: str, shape: tuple[int, ...]) -> LoraPair:
        """The change of a module whose W has this shape. Raises `ModelLoadError` naming a tensor that does not fit."""
        there = self.modules.get(module, module)
        rank = self._found(self.rank_pattern, there, self.r)
        alpha = self._found(self.alpha_pattern, there, self.lora_alpha)
        if rank < 1 or not math.isfinite(alpha):
            raise ModelLoadError(
                f"{self.origin / ADAPTER}: r={rank} and lora_alpha={alpha} of {there} must be at least 1 and finite"
            )
        for name, wanted in ((there + _A, (rank, shape[1])), (there + _B, (shape[0], rank))):
            if name not in self.tensors:
                raise ModelLoadError(f"{self.origin} lacks the tensor '{name}': take its files from one place")
            if self.tensors.shape(name) != wanted:
                raise ModelLoadError(
                    f"tensor '{name}' in {self.origin} has shape {self.tensors.shape(name)}, {ADAPTER} and the model "
                    f"ask for {wanted}: take the model that the adapter was trained on ({shown(self.base)})"
                )
        a, b = (self.tensors[there + part].float() for part in (_A, _B))
        return LoraPair(a=a, b=b, scale=alpha / (math.sqrt(rank) if self.use_rslora else rank))

    def refuse_others(self, known: set[str]) -> None:
        """Raise `ModelLoadError` for a module that is not one of these."""
        if strange := sorted(self.modules.keys() - known):
            raise ModelLoadError(
                f"{self.origin} changes {len(strange)} modules that are no linear maps of this model, or share their "
                f"weights with the embeddings, e.g. {self.modules[strange[0]]}: take the model that it was trained on "
                f"({shown(self.base)}), or {MERGE}"
            )

    def _found(self, patterns: Mapping[str, T], module: str, default: T) -> T:
        try:
            return next((x for key, x in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)
        except re.error as error:
            raise ModelLoadError(f"{self.origin / ADAPTER}: {error.pattern!r} is no regular expression") from error


def open_lora(directory: Path) -> PeftLora:
    """The adapter in a directory, its config and names checked. Raises `ModelLoadError` for one of another kind."""
    if not (directory / ADAPTER).exists() or not any((directory / name).exists() for name in WEIGHTS):
        raise ModelLoadError(
            f"{directory} has no {ADAPTER} or no {WEIGHTS[0]}: give a directory in which PEFT, or outdraft where it "
            "trained a target, wrote a LoRA adapter"
        )
    raw = read_json(directory / ADAPTER)
    for key, value in {"peft_type": None, **raw}.items():
        if key not in _READ and key not in _NOT_LOOKED_AT and value not in _NEUTRAL.get(key, OFF):
            raise ModelLoadError(
                f"{directory / ADAPTER}: {key}={shown(value)} is not supported, LoRA of linear maps alone is: {MERGE}"
            )
    source = open_tensors(directory, WEIGHTS)
    tensors = NamedTensors(source, {name.removeprefix(_PREFIX): name for name in source})
    modules, others = {}, []
    for name in tensors:
        if not name.endswith((_A, _B)):
            raise ModelLoadError(f"{directory}: the tensor {shown(name)} is no factor of a linear map: {MERGE}")
        if (here := text_name(name)) is not None:
            modules[here[: -len(_A)]] = name[: -len(_A)]
        else:
            others.append(name)
    if others:
        _log.warning("%s: changes of pictures or sound are not merged (%s)", directory.name, ", ".join(others[:3]))
    return PeftLora(
        origin=directory,
        base=raw.get("base_model_name_or_path"),
        r=raw.get("r"),  # type: ignore[arg-type]  # the types are checked
        lora_alpha=raw.get("lora_alpha"),  # type: ignore[arg-type]
        use_rslora=raw.get("use_rslora") or False,  # type: ignore[arg-type]
        rank_pattern=raw.get("rank_pattern") or {},  # type: ignore[arg-type]
        alpha_pattern=raw.get("alpha_pattern") or {},  # type: ignore[arg-type]
        modules=modules,
        tensors=tensors,
    )


def write_lora(directory: Path, pairs: Mapping[str, tuple[Tensor, Tensor]], *, rank: int, alpha: float) -> None:
    """Write A [rank, in] and B [out, rank] of each module as PEFT reads them."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "target_modules": sorted({module.rpartition(".")[2] for module in pairs}),
        "bias": "none",
        "inference_mode": True,
    }
    directory.mkdir(parents=True, exist_ok=True)
    _write_config(directory, config)
    tensors = {f"{_PREFIX}{module}{_A}": a for module, (a, _) in pairs.items()}
    save_tensors(tensors | {f"{_PREFIX}{module}{_B}": b for module, (_, b) in pairs.items()}, directory / WEIGHTS[0])


def name_base(directory: Path, model: str) -> None:
    """Say in an adapter's config which model it is for."""
    _write_config(directory, {**read_json(directory / ADAPTER), "base_model_name_or_path": model})


def _write_config(directory: Path, config: Mapping[str, object]) -> None:
    (directory / ADAPTER).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def linear_entries(config: ModelConfig) -> dict[str, Entry]:
    """Where the matrix of each linear map of ours stands in a model's files, as rows of outputs; no tied head."""
    found = {}
    for entry in ARCHITECTURES[config.architecture].table(config):
        name = entry.ours.removesuffix(".weight")
        if name != entry.ours and is_linear(name) and not (config.tie_embeddings and entry.ours in HEAD):
            found[name] = replace(entry, layout=Layout.STACKED) if entry.layout is Layout.TRANSPOSED else entry
    return found
