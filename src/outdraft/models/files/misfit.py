"""The one error where the tensors that a config.json asks for are not those that the files hold."""

from collections.abc import Iterable
from pathlib import Path

from outdraft.models.files.peft_adapter import merging
from outdraft.options.errors import ModelLoadError

CURE = "take config.json and weights from one place, or download both again"


def refuse_misfit(origin: Path, missing: Iterable[str], unexpected: Iterable[str]) -> None:
    """Raise `ModelLoadError` naming what is missing and what nothing explains; both may be empty."""
    missing, unexpected = sorted(missing), sorted(unexpected)
    if not missing and not unexpected:
        return
    told = []
    if missing:
        told.append(f"lacks {len(missing)} tensors, e.g. {', '.join(missing[:3])}")
    if unexpected:
        told.append(
            f"has {len(unexpected)} tensors that its config.json does not explain, e.g. {', '.join(unexpected[:3])}"
        )
    raise ModelLoadError(f"{origin} {', and '.join(told)}: {merging(unexpected) or CURE}")
