"""Learn from what a target writes while it serves, and judge what was learned; no text is written for it.

    served requests --+-- a share, by a hash of the prompt: held out --> both drafts judged on it --> the gate
                      +-- the rest: fresh, a share of earlier ones, a share of the draft's own training
                          (answers.jsonl, where it lies beside the draft) --> one step of the optimiser

A pass of the target over what it wrote gives its states and distributions again, so a request is kept as ids alone.
Nothing here knows an engine: the server's learner and a replay in simulated time run the same code. The draft that
serves and the copy that learns are one network with two sets of weights.

Zhang et al., "OSD: online speculative decoding", 2023, https://arxiv.org/abs/2310.07177, learns at rejected positions
alone; here every position of an answer counts, and a share of each step is of earlier requests, since what is never
repeated is lost. Data in: requests; data out: weights, and what several of them would have had accepted of a request.
"""

import random
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import torch
from torch import Tensor

from outdraft.adapt.kinds import Cure, Finding
from outdraft.adapt.learning import Learning
from outdraft.adapt.specimen import compare
from outdraft.core.learner import Learner, Moment
from outdraft.core.learner_registry import find_learner
from outdraft.learn.compare import said_of_text
from outdraft.learn.losses import mixed
from outdraft.learn.low_rank import LowRank
from outdraft.learn.save import learned, put_back
from outdraft.learn.step import Optimizer
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.read_file import load_json
from outdraft.training.computing import Format, without_denormals
from outdraft.training.corpus import LEAST
from outdraft.training.document_states import DocumentStates
from outdraft.training.draft import DraftObjective, walk_of
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows, answer_rows
from outdraft.training.record import RECORD, read_record, write_record
from outdraft.training.served import ANSWERS, ServedRequest, read_served
from outdraft.training.specimens import take_specimen

_ENDLESS = 1 << 30  # steps of a run that has no end
_MOST_KNOWN = 1 << 16  # prompts that were learned from, the latest
_SHARE = "share"  # of a record: how far a version lies on the way from the beginning to what was learned
_LEAN = {Cure.LEARN_EARLY: 0.5, Cure.LEARN_LATE: 2.0}  # weight of a position against the one before


class DraftWeights(dict[str, Tensor]):
    """What is learned of a draft, by name. share: how far on the way from the beginning to what was learned it lies."""

    share = 1.0


class LiveDraft:
    """A draft that serves, and a copy that learns. `target`: what `open_target` gave, which several may share.

    `begun`: the draft that was there before anything was learned; None: this one.
    """

    def __init__(
        self,
        target: tuple[Decoder, Format],
        draft: Path,
        settings: Learning,
        *,
        begun: Path | None = None,
        seed: int = 0,
    ) -> None:
        self.record = record = read_record(draft)
        self.kind, self.settings, self._draft = record.kind, settings, draft
        method = find_learner(record.kind)
        self._decoder, self.line = target[0], target[1].line
        self.learner: Learner = method.load(method.options(), self._decoder, draft)
        self.teacher = Teacher(self._decoder, self.learner.taps, DocumentStates(settings.states_bytes))
        loss = mixed(method.loss)
        self._objective = DraftObjective(
            self.learner, self.teacher, loss.rows, temperature=settings.temperature or 1.0, beside=loss.beside
        )
        self.serving, self._seed, self.window = self.weights(), seed, settings.window
        self.serving.share = load_json(draft / RECORD).get(_SHARE, 1.0)
        self._origin = self.serving if begun is None else self.read(begun)
        self.go_back()
        self._coins = random.Random(seed)
        self._fresh: list[ServedRequest] = []
        self._earlier: list[ServedRequest] = []
        beside = draft / ANSWERS
        self._trained = read_served(beside, self._decoder.config.vocab_size) if beside.is_file() else []
        self._known: dict[float, None] = {}  # numbers of what was learned from
        self._num_seen = self.num_steps = self.num_tokens = self.num_served = 0  # tokens learned, and to be learned
        self.treat(settings.cure)

    def treat(self, cure: Cure) -> None:
        """Learn by this cure from now on. `Cure.MEND`: nothing; requests are kept, as if they had been learned from."""
        self.cure, self._objective.lean = cure, _LEAN.get(cure, 1.0)
        self.window = self.settings.window * (2 if cure is Cure.LEARN_LATE else 1)
        while self._fresh and cure is Cure.MEND:
            self.remember(self._fresh.pop(0))

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
        if self.cure is Cure.MEND:
            self.remember(served)
            return False
        self._fresh.append(served)
        self.num_served += self.length(served)
        return False

    @property
    def fresh_share(self) -> float:
        """The share of a step that is of fresh requests."""
        return 1 - self.settings.replay - (self.settings.trained if self._trained else 0.0)

    @property
    def num_waiting(self) -> int:
        """Tokens that have not been learned from."""
        return sum(self.length(one) for one in self._fresh)

    def learn(self) -> float:
        """One step over what is fresh, and a share of what is not; the mean loss. Raises `ConfigError` without any."""
        return self.step(self._chosen())

    def step(self, requests: Seq[ServedRequest]) -> float:
        """One step over these requests; the mean loss."""
        moment = Moment(step=self.num_steps, steps=_ENDLESS, seed=self._seed + self.num_steps)
        rows = replace(self._rows(requests), moment=moment)
        with without_denormals(), self.teacher.computing():
            found = self._objective.total(rows)
        self.optimizer.clear()
        loss = found[0] / found[1].clamp_min(1e-9)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.update(1.0, self.settings.clip)
        self.num_steps, self.num_tokens = self.num_steps + 1, self.num_tokens + rows.ids.shape[1] - 1
        return float(loss.detach())

    @torch.no_grad()
    def judge(
        self, requests: Seq[ServedRequest], drafts: Seq[DraftWeights], temperature: float | None = None
    ) -> list[list[float]]:
        """Of each draft, the accepted tokens a round on each request; all from one pass of the target.

        `temperature`: None is that of the settings.
        """
        if not requests:
            return [[] for _ in drafts]
        rows = answer_rows([(one.prompt[-self.window :], one.answer) for one in requests])
        now, found, depth = self.weights(), list[list[float]](), self.settings.depth
        temperature = self.settings.temperature if temperature is None else temperature
        with self.teacher.computing():
            lesson = replace(self.teacher.lesson(rows), depth=depth)
        said: Tensor | None = None
        for weights in drafts:
            put_back(self.learner.module, weights)
            with self.teacher.computing():  # one for each draft: autocast keeps what it has rounded until it is left
                outlook = self.learner.look(lesson)
                if said is None:
                    said = said_of_text(outlook, lesson, self.teacher.logits, temperature)
                walk = walk_of(outlook, self.teacher, lesson, depth, temperature, said)
            found.append([tokens / rounds - 1 for tokens, rounds in zip(walk.tokens, walk.rounds, strict=True)])
        put_back(self.learner.module, now)
        return found

    def weights(self) -> DraftWeights:
        """A copy of what has been learned so far."""
        return DraftWeights({name: one.clone() for name, one in learned(self.learner.module).items()})

    def write(self, weights: DraftWeights, directory: Path) -> None:
        """These, as the drafter loads them, with a record; what is being learned stays as it is."""
        now = self.weights()
        put_back(self.learner.module, weights)
        self.learner.save(directory)
        record, known = {**load_json(self._draft / RECORD), "promises": []}, self.record.specimen  # of other weights
        record[_SHARE] = weights.share
        if known is not None:
            record["specimen"] = take_specimen(self.learner, self.teacher, directory, known.ids).data()
        put_back(self.learner.module, now)
        write_record(directory, record)
        if (self._draft / ANSWERS).is_file():
            copyfile(self._draft / ANSWERS, directory / ANSWERS)

    def read(self, directory: Path) -> DraftWeights:
        """What another draft of the same kind has learned."""
        method = find_learner(self.kind)
        other: Learner = method.load(method.options(), self._decoder, directory)
        found = DraftWeights({name: one.clone() for name, one in learned(other.module).items()})
        found.share = load_json(directory / RECORD).get(_SHARE, 1.0)
        return found

    def candidate(self) -> DraftWeights:
        """A share of the way from where learning began to all that was learned: it forgets less, and gains as much.

        Wortsman et al., "Robust fine-tuning of zero-shot models", 2021, https://arxiv.org/abs/2109.01903.
        """
        now, share = learned(self.learner.module), self.settings.share
        found = DraftWeights({name: torch.lerp(one, now[name], share) for name, one in self._origin.items()})
        found.share = share
        return found

    def go_back(self) -> None:
        """Begin again at what had been learned when that which serves was taken; the optimiser forgets too."""
        ahead = 1 / self.serving.share
        behind = {name: torch.lerp(one, self.serving[name], ahead) for name, one in self._origin.items()}
        put_back(self.learner.module, behind)
        self.optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> Optimizer | LowRank:
        """Of a module that holds what learning goes on from."""
        own, size = self.settings, self._decoder.config.vocab_size
        named = [(name, one) for name, one in self.learner.module.named_parameters() if one.requires_grad]
        for part in own.layers:
            if not any(f".{part}." in f".{name}." for name, _ in named):
                known = ", ".join(dict.fromkeys(name.removesuffix(".weight") for name, _ in named))
                raise ConfigError(f"layers: {part!r} is in no name of the draft's weights; they are {known}")
        if own.layers:
            named = [one for one in named if any(f".{part}." in f".{one[0]}." for part in own.layers)]
        if own.rank:
            return LowRank(
                named, self.weights(), rank=own.rank, lr=own.lr, muon_lr=own.muon_lr, vocab_size=size, seed=self._seed
            )
        return Optimizer(named, lr=own.lr, muon_lr=own.muon_lr, weight_decay=0.0, vocab_size=size)

    def _chosen(self) -> list[ServedRequest]:
        """Of a step: the oldest fresh ones, one at least, and others; in their shares as far as there are any."""
        if not self._fresh and not self._earlier:
            raise ConfigError("there is nothing to learn from yet: no request has been answered")
        room, chosen = self.settings.step_tokens, list[ServedRequest]()
        trained = 1 - self.settings.trained if self._trained else 1.0
        for pool, rest in ((self._trained, trained), (self._earlier, self.fresh_share if self._fresh else 0.0)):
            while pool and room > rest * self.settings.step_tokens:
                chosen.append(one := self._coins.choice(pool))
                room -= self.length(one)
        has_fresh = False
        while self._fresh and (room > 0 or not has_fresh):
            chosen.append(one := self._fresh.pop(0))
            room, has_fresh = room - self.length(one), True
            self.remember(one)
        return chosen

    def remember(self, one: ServedRequest) -> None:
        """It was learned from, and may be again. Each that was ever seen is as likely to be among those kept.

        Vitter, "Random sampling with a reservoir", 1985, https://doi.org/10.1145/3147.3165.
        """
        self._num_seen += 1
        self._known[one.number] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        if len(self._earlier) < self.settings.kept:
            self._earlier.append(one)
        elif (place := self._coins.randrange(self._num_seen)) < self.settings.kept:
            self._earlier[place] = one

    def knows(self, one: ServedRequest) -> bool:
        """Whether a request with this prompt was learned from."""
        return one.number in self._known

    def length(self, one: ServedRequest) -> int:
        return min(len(one.prompt), self.window) + len(one.answer)

    def _rows(self, requests: Seq[ServedRequest]) -> PackedRows:
        """All behind each other in one row [1, T + 1]."""
        ids, documents, counts = list[int](), list[int](), list[bool]()
        for number, one in enumerate(requests):
            asked, length = min(len(one.prompt), self.window), self.length(one)
            ids += [*one.prompt[-self.window :], *one.answer]
            documents += [number] * length
            counts += [asked <= i + 1 < length for i in range(length)]
        return PackedRows(
            ids=torch.tensor([ids]), documents=torch.tensor([documents]), counts=torch.tensor([counts[:-1]])
        )
