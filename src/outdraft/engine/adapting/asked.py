"""`LLM(..., adapt=)`, read; what it needs is imported where it is asked for, because most engines do not learn."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.engine.assembly.precision import ELASTIC
from outdraft.engine.callers.thread import EngineThread
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.adapt.options import AdaptOptions
    from outdraft.engine.adapting.adapting import Adapting


def adapt_options(asked: bool | Mapping[str, Any], precision: str) -> "AdaptOptions | None":
    """None: nothing learns. Raises `ConfigError` for options that are none, and where weights change by themselves."""
    if asked is False:
        return None
    from outdraft.adapt.options import AdaptOptions
    from outdraft.core.registry import read_options

    if precision == ELASTIC:
        raise ConfigError(
            f"adapt= and precision={precision!r} both change weights while requests run: leave one out, or take "
            "another precision"
        )
    return AdaptOptions() if asked is True else read_options(AdaptOptions, asked, "adapt")


def begin_adapting(thread: EngineThread, target: Path, options: "AdaptOptions") -> "Adapting":
    """Have the drafter of this engine learn. Raises what `Adapting` raises; the engine's thread is then closed."""
    from outdraft.engine.adapting.adapting import Adapting

    try:
        return Adapting(thread, target, options)
    except BaseException:
        thread.close()
        raise
