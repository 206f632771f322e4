"""The arguments of what stands beside the engine: datastores, quantization, caches, prompts of a chat."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from lab.strange.argument import Argument
from lab.strange.stage import Stage
from outdraft.cache.config import CacheConfig
from outdraft.codecs.chat import render_chat
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.drafters.shared.look_up.datastore.documents import find_files
from outdraft.drafters.shared.look_up.datastore.file import open_datastore
from outdraft.kernels.text_index.suffix_array import CorpusQuery
from outdraft.models.files.load import load_model
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.weights.hub import resolve


def tool_arguments(stage: Stage) -> Iterator[Argument]:
    """Every argument of the tools beside the engine."""
    where = stage.directory / "made"
    encoder = IdsOnly(vocab_size=61)
    yield Argument(name="build_datastore(path)", use=lambda v: build_datastore(_inside(stage, v), [[1, 2]], encoder))
    yield Argument(name="build_datastore(documents)", use=lambda v: build_datastore(where, v, encoder))
    yield Argument(name="build_datastore(documents=[.])", use=lambda v: build_datastore(where, [[1], v], encoder))
    yield Argument(name="build_datastore(documents=[[.]])", use=lambda v: build_datastore(where, [[1, v]], encoder))
    yield Argument(name="IdsOnly(vocab_size)", use=lambda v: build_datastore(where, [[1]], IdsOnly(vocab_size=v)))
    yield Argument(name="open_datastore(path)", use=open_datastore)
    yield Argument(name="find_files(paths)", use=lambda v: find_files([v]))
    yield Argument(name="resolve(name)", use=lambda v: resolve(v))
    yield Argument(name="load_model(path)", use=load_model)
    yield Argument(name="load_model(dtype)", use=lambda v: load_model(stage.target, v))
    yield Argument(name="load_model(device)", use=lambda v: load_model(stage.target, device=v))
    yield Argument(name="render_chat(messages)", use=lambda v: render_chat(None, v))
    yield Argument(name="render_chat([.])", use=lambda v: render_chat(None, [v]))
    yield Argument(name="render_chat(content)", use=lambda v: render_chat(None, [{"role": "user", "content": v}]))
    for record, good in ((QuantConfig, {}), (CacheConfig, {}), (CorpusQuery, {})):
        for one in fields(record):
            if one.default is not MISSING or one.default_factory is not MISSING:

                def use(value: Any, record: Any = record, name: str = one.name, good: Any = good) -> object:
                    made = record(**{**good, name: value})
                    return quantize_decoder(load_model(stage.draft, "float32"), made) if record is QuantConfig else made

                yield Argument(name=f"{record.__name__}({one.name})", use=use)


def _inside(stage: Stage, value: Any) -> Any:
    """A path that is good must not be written to outside of the stage."""
    return stage.directory / "paths" / value.lstrip("/") if isinstance(value, str) else value
