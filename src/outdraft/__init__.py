"""outdraft: speculative decoding, lossless and provable.

    from outdraft import LLM, SamplingParams
    llm = LLM("zoo:target")
    print(llm.generate("The first thing she saw", SamplingParams(max_tokens=60)).text)

Importing this package is light: torch is loaded when `LLM` is first touched.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outdraft.engine.callers.result import Chunk as Chunk
    from outdraft.engine.callers.result import Result as Result
    from outdraft.engine.llm import LLM as LLM
    from outdraft.engine.trace import record_trace as record_trace
    from outdraft.options.errors import OutdraftError as OutdraftError
    from outdraft.options.params import SamplingParams as SamplingParams
    from outdraft.options.structured import StructuredOutputsParams as StructuredOutputsParams

__version__ = "0.1.0"

_HOMES = {
    "LLM": "outdraft.engine.llm",
    "SamplingParams": "outdraft.options.params",
    "StructuredOutputsParams": "outdraft.options.structured",
    "OutdraftError": "outdraft.options.errors",
    "Result": "outdraft.engine.callers.result",
    "Chunk": "outdraft.engine.callers.result",
    "record_trace": "outdraft.engine.trace",
}

__all__ = [
    "LLM",
    "Chunk",
    "OutdraftError",
    "Result",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
    "record_trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        collects = gc.isenabled()
        gc.disable()  # looking through torch's objects again and again was half of an import's time
        try:
            return getattr(import_module(_HOMES[name]), name)
        finally:
            if collects:
                gc.enable()
    raise AttributeError(f"module 'outdraft' has no attribute {name!r}")
