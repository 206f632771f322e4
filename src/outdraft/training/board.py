"""The numbers of a run for TensorBoard, if it is installed. The log in JSON lines is written either way."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outdraft.options.errors import ConfigError

Board = Callable[[int, Mapping[str, Any]], None]


def open_board(place: Path) -> Board:
    """What shows a step's numbers; lists position by position. Raises `ConfigError` where TensorBoard is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # it imports the package tensorboard
    except ImportError:
        raise ConfigError(
            f"tensorboard={str(place)!r} needs the package tensorboard: pip install outdraft[train]; the log in JSON "
            "lines is written without it"
        ) from None
    writer = SummaryWriter(str(place))  # type: ignore[no-untyped-call, unused-ignore]

    def show(step: int, numbers: Mapping[str, Any]) -> None:
        for name, value in numbers.items():
            parts = enumerate(value, 1) if isinstance(value, list | tuple) else ((None, value),)
            for position, one in parts:
                if isinstance(one, int | float) and name != "step":
                    tag = name if position is None else f"{name}/{position}"
                    writer.add_scalar(tag, one, step)  # type: ignore[no-untyped-call, unused-ignore]
        writer.flush()  # type: ignore[no-untyped-call, unused-ignore]

    return show
