"""Further methods of `LLM`: what runs, and other engines over the weights that it holds."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from outdraft.cache.config import CacheConfig
from outdraft.engine.assembly.assemble import Assembled, engine_beside
from outdraft.engine.assembly.elastic import ElasticEngine
from outdraft.engine.assembly.precision import FULL, MIXED
from outdraft.engine.assembly.setup import Setup
from outdraft.engine.assembly.variant import network_of
from outdraft.engine.callers.thread import EngineThread
from outdraft.engine.loop import Engine
from outdraft.engine.naming.roles import read_companions
from outdraft.engine.naming.words import WORDS, read_beside
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.models.files.load_codec import load_codec
from outdraft.models.networks.network import Network
from outdraft.options.shown import shown


class Siblings:
    """A base of `LLM`, which sets its fields and is built of a setup and an engine by `_run`."""

    engine: Engine
    _setup: Setup
    _config: dict[str, Any]
    _thread: EngineThread

    @property
    def config(self) -> dict[str, Any]:
        """What runs, as plain data; with elastic precision, what runs now."""
        return self.engine.config if isinstance(self.engine, ElasticEngine) else self._config

    @property
    def lossless(self) -> bool:
        """Whether what it writes has the target's distribution; a lossy verifier says no."""
        return self.engine.lossless

    def __repr__(self) -> str:
        told = self.config
        drafters = "+".join(told["drafter"].get("arms", [told["drafter"]["name"]]))
        words = {
            "drafter": drafters,
            "policy": told["policy"]["name"],
            "dtype": told["dtype"],
            "device": told["device"],
        }
        return f"LLM({shown(str(told['model']))}, {', '.join(f'{name}={value!r}' for name, value in words.items())})"

    def _run(self, setup: Setup, made: Assembled) -> None:
        raise NotImplementedError  # `LLM` says it

    @classmethod
    def over(cls, model: Path, network: Network) -> Self:
        """Plain decoding over weights that are in memory already, of the model in this directory.

        `with_drafter` and its like put drafters beside them.
        """
        setup = Setup(
            directory=model,
            codec=load_codec(model),
            dtype="auto",
            device=network.device,
            exact=network.exact,
            guard=None,
            enforce_eager=False,
            max_len=None,
            scheduling=SchedulerSettings(),
            cache=CacheConfig(),
            combination=read_beside({}, cls.__init__, dict, drafter="none"),
        )
        made = object.__new__(cls)
        made._run(setup, engine_beside(setup, network))
        return made

    def with_drafter(self, drafter: str | Path | Mapping[str, Any], **others: Any) -> Self:
        """Another engine over the same loaded weights, which it keeps: with elastic precision, those of this moment.

        The drafter is named as for `LLM`. `others`: verifier, policy, num_speculative_tokens, draft_model, ...
        """
        return self.with_speculation(drafter=drafter, **others)

    def with_speculation(self, **words: Any) -> Self:
        """Likewise, in any words of `LLM` for what drafts: drafter, speculative_config, draft_model, ..."""
        unknown = {word: words.pop(word) for word in words.keys() - WORDS}
        companions = partial(read_companions, self._setup.directory)
        combination = read_beside(unknown, type(self).__init__, companions, **words)
        network, made = self._thread.ask(lambda engine: (network_of(engine.parts), self.config["precision"]))
        level = MIXED if MIXED in (made["name"], made.get("level")) else FULL
        setup = replace(self._setup, combination=combination, precision=level, precision_options={})
        other = object.__new__(type(self))
        other._run(setup, engine_beside(setup, network))
        return other
