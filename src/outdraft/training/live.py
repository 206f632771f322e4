"""Learn from what a target writes while it serves, and judge what was learned; no text is written for it.

    served requests --+-- a share, by a hash of the prompt: held out --> both drafts judged on it --> the gate
                      +-- the rest: fresh, and a share of earlier ones --> one step of the optimiser

A pass of the target over what it wrote gives its states and distributions again, so a request is kept as ids alone.
Nothing here knows an engine: the server's learner and a replay in simulated time run the same code. The draft that
serves and the copy that learns are one network with two sets of weights.

Zhang et al., "OSD: online speculative decoding", 2023, https://arxiv.org/abs/2310.07177, learns at rejected positions
alone; here every position of an answer counts, and a share of each step is of earlier requests, since what is never
repeated is lost. Data in: requests; data out: weights, and what several of them would have had accepted of a request.
"""

import hashlib
import random
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outdraft.adapt.kinds import Finding
from outdraft.adapt.specimen import compare
from outdraft.core.learner import Learner, Moment
from outdraft.core.registry import find_learner
from outdraft.learn.losses import mixed
from outdraft.learn.save import learned, put_back
from outdraft.learn.step import Optimizer
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.options.read_file import load_json
from outdraft.training.computing import open_target, without_denormals
from outdraft.training.corpus import LEAST
from outdraft.training.draft import DraftObjective, walk_through
from outdraft.training.examples import read_records
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows, answer_rows
from outdraft.training.record import RECORD, read_record, write_record
from outdraft.training.specimens import take_specimen

_DIGITS = 1 << 32
_ENDLESS = 1 << 30  # steps of a run that has no end


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request, as it was answered."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    domain: str = ""

    @property
    def number(self) -> float:
        """In 0..1, decided by the prompt: requests that ask the same are all held out, or none."""
        digest = hashlib.sha256(np.asarray(self.prompt, np.int64).tobytes()).digest()
        return int.from_bytes(digest[:4], "big") / _DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How a draft learns beside its service. Raises `ConfigError` naming what is out of range."""

    lr: float = 3e-4  # AdamW: norms, tables, heads
    muon_lr: float = 1e-3  # Muon: matrices; 0: AdamW for everything
    clip: float = 1.0
    step_tokens: int = 1024  # rows of a step
    held_out: float = 0.2  # the share of requests that only judge
    replay: float = 0.3  # the share of a step that is of earlier requests
    kept: int = 2000  # earlier requests that are kept for it, each as likely as any
    window: int = 256  # tokens of a prompt that are read before the answer, the last ones
    depth: int = 5  # tokens of a guess that are judged

    def __post_init__(self) -> None:
        check_range(self, "lr", "muon_lr", least=0.0, most=1.0)
        check_range(self, "clip", least=1e-6)
        check_range(self, "step_tokens", least=64, most=1 << 20)
        check_range(self, "held_out", "replay", least=0.0, most=0.9)
        check_range(self, "kept", least=1, most=1 << 20)
        check_range(self, "window", "depth", least=1, most=1 << 16)


Weights = Mapping[str, Tensor]  # what is learned of a draft, by name


class LiveDraft:
    """A draft that serves, and a copy that learns. `target`: a directory or file; `draft`: a directory."""

    def __init__(self, target: Path, draft: Path, settings: Learning, *, dtype: str = "auto", seed: int = 0) -> None:
        self.record = record = read_record(draft)
        self.kind, self.settings, self._draft = record.kind, settings, draft
        method = find_learner(record.kind)
        self._decoder, found = open_target(target, dtype, "cpu")
        self.line = found.line
        self.learner: Learner = method.load(method.options(), self._decoder, draft)
        self.teacher = Teacher(self._decoder, self.learner.taps)
        loss = mixed(method.loss)
        self._objective = DraftObjective(self.learner, self.teacher, loss.rows, beside=loss.beside)
        self.serving = self.weights()
        self._optimizer = self._fresh_optimizer()
        self._coins = random.Random(seed)
        self._fresh: list[ServedRequest] = []
        self._earlier: list[ServedRequest] = []
        self._num_seen = self.num_steps = self.num_tokens = 0
        self._seed = seed

    def findings(self) -> list[Finding]:
        """What a specimen shows of the pair, before anything was learned; nothing where the record holds none."""
        known = self.record.specimen
        return (
            [] if known is None else compare(known, take_specimen(self.learner, self.teacher, self._draft, known.ids))
        )

    def add(self, served: ServedRequest) -> bool:
        """Take a request; whether it is held out. One without an answer of two tokens is neither."""
        if len(served.answer) < LEAST:
            return False
        if served.number < self.settings.held_out:
            return True
        self._fresh.append(served)
        return False

    @property
    def num_waiting(self) -> int:
        """Tokens that have not been learned from."""
        return sum(self._length(one) for one in self._fresh)

    def learn(self) -> float:
        """One step over what is fresh, and a share of what is not; the mean loss. Raises `ConfigError` without any."""
        chosen = self._chosen()
        moment = Moment(step=self.num_steps, steps=_ENDLESS, seed=self._seed + self.num_steps)
        rows = replace(self._rows(chosen), moment=moment)
        with without_denormals(), self.teacher.computing():
            found = self._objective.total(rows)
        self._optimizer.clear()
        loss = found[0] / found[1].clamp_min(1e-9)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.update(1.0, self.settings.clip)
        self.num_steps, self.num_tokens = self.num_steps + 1, self.num_tokens + rows.ids.shape[1] - 1
        return float(loss.detach())

    @torch.no_grad()
    def judge(self, requests: Seq[ServedRequest], drafts: Seq[Weights], temperature: float = 1.0) -> list[list[float]]:
        """Of each draft, the accepted tokens a round on each request; all from one pass of the target."""
        if not requests:
            return [[] for _ in drafts]
        rows = answer_rows([(one.prompt[-self.settings.window :], one.answer) for one in requests])
        now, found = self.weights(), list[list[float]]()
        with self.teacher.computing():
            lesson = replace(self.teacher.lesson(rows), depth=self.settings.depth)
            for weights in drafts:
                put_back(self.learner.module, weights)
                walk = walk_through(self.learner, self.teacher, lesson, self.settings.depth, temperature)
                found.append([tokens / rounds - 1 for tokens, rounds in zip(walk.tokens, walk.rounds, strict=True)])
        put_back(self.learner.module, now)
        return found

    def weights(self) -> Weights:
        """A copy of what has been learned so far."""
        return {name: one.clone() for name, one in learned(self.learner.module).items()}

    def serve(self, directory: Path) -> None:
        """What was learned is what serves from now on: it is written there, as the drafter loads it."""
        self.learner.save(directory)
        record, known = {**load_json(self._draft / RECORD), "promises": []}, self.record.specimen  # of other weights
        if known is not None:
            record["specimen"] = take_specimen(self.learner, self.teacher, directory, known.ids).data()
        write_record(directory, record)
        self.serving = self.weights()

    def go_back(self) -> None:
        """Begin again at what serves; what the optimiser remembers is dropped too."""
        put_back(self.learner.module, self.serving)
        self._optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> Optimizer:
        named = [(name, one) for name, one in self.learner.module.named_parameters() if one.requires_grad]
        return Optimizer(
            named,
            lr=self.settings.lr,
            muon_lr=self.settings.muon_lr,
            weight_decay=0.0,
            vocab_size=self._decoder.config.vocab_size,
        )

    def _chosen(self) -> list[ServedRequest]:
        """Of a step: the oldest fresh ones, and earlier ones; both in their shares as far as there are any."""
        if not self._fresh and not self._earlier:
            raise ConfigError("there is nothing to learn from yet: no request has been answered")
        room, chosen = self.settings.step_tokens, list[ServedRequest]()
        share = self.settings.replay if self._fresh else 1.0
        while self._earlier and room > (1 - share) * self.settings.step_tokens:
            chosen.append(one := self._coins.choice(self._earlier))
            room -= self._length(one)
        while self._fresh and room > 0:
            chosen.append(one := self._fresh.pop(0))
            room -= self._length(one)
            self._keep(one)
        return chosen

    def _keep(self, one: ServedRequest) -> None:
        """Each that was ever seen is as likely to be among those kept.

        Vitter, "Random sampling with a reservoir", 1985, https://doi.org/10.1145/3147.3165.
        """
        self._num_seen += 1
        if len(self._earlier) < self.settings.kept:
            self._earlier.append(one)
        elif (place := self._coins.randrange(self._num_seen)) < self.settings.kept:
            self._earlier[place] = one

    def _length(self, one: ServedRequest) -> int:
        return min(len(one.prompt), self.settings.window) + len(one.answer)

    def _ids(self, one: ServedRequest) -> tuple[list[int], int]:
        """What is read of a request, and how much of it is the prompt."""
        before = one.prompt[-self.settings.window :]
        return [*before, *one.answer], len(before)

    def _rows(self, requests: Seq[ServedRequest]) -> PackedRows:
        """All behind each other in one row [1, T + 1]."""
        ids, documents, counts = list[int](), list[int](), list[bool]()
        for number, one in enumerate(requests):
            own, asked = self._ids(one)
            ids += own
            documents += [number] * len(own)
            counts += [asked <= i + 1 < len(own) for i in range(len(own))]
        return PackedRows(
            ids=torch.tensor([ids]), documents=torch.tensor([documents]), counts=torch.tensor([counts[:-1]])
        )


def read_served(path: Path) -> list[ServedRequest]:
    """Requests of a file, in its order. Raises `ConfigError` for a line without a prompt and two ids of an answer."""
    found = []
    for where, record in read_records(path):
        ids = [record.get(name) for name in ("prompt_token_ids", "token_ids")]
        if not all(isinstance(one, list) and all(type(token) is int for token in one) for one in ids):
            raise ConfigError(
                f"{where}: a served request has prompt_token_ids and token_ids, lists of ids; the target writes them "
                "(outdraft train answers)"
            )
        prompt, answer = (tuple(one or ()) for one in ids)
        if not prompt or len(answer) < LEAST:
            raise ConfigError(
                f"{where}: nothing can be guessed behind {len(prompt)} and {len(answer)} ids: leave it out"
            )
        found.append(ServedRequest(prompt=prompt, answer=answer, domain=str(record.get("domain") or "")))
    return found
