"""How often each rank of each head is right on texts that a draft did not learn from, and the tree that follows.

Cai et al. 2024, https://arxiv.org/abs/2401.10774. Data in: a trained draft, its target, texts; data out:
accuracies by head and rank, and the tree of the largest products, written beside the draft.
"""

import tempfile
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.core.learner import Learner
from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import find
from outdraft.drafters.shared.heads.config import HeadOptions
from outdraft.drafters.shared.trees.template import TemplateFile, best_template, expected_tokens
from outdraft.models.files.load import load_model
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import MOST_NODES
from outdraft.training.computing import choose_format
from outdraft.training.corpus import open_corpus
from outdraft.training.examples import find_files
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows, example_rows
from outdraft.training.record import fingerprint, read_record, require_target
from outdraft.weights.hub import resolve

TREE = "tree.json"
_CHUNK = 1 << 22  # logits that are held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTree:
    """What was written, and what is expected of it."""

    path: Path
    template: TemplateFile
    expected: float  # tokens a round, if heads were right independently of each other
    guesses: int  # of the first head that were looked at


@torch.no_grad()
def count_ranks(
    learner: Learner, teacher: Teacher, batches: Seq[PackedRows], ranks: int
) -> list[tuple[list[float], int]]:
    """Of each head how often the text's own token is the one of each rank, and over how many guesses that count."""
    found: list[tuple[list[float], int]] = []
    for rows in batches:
        lesson = teacher.lesson(rows)
        with teacher.computing():
            outlook = learner.look(lesson)
        if outlook.recurs:
            raise ConfigError(
                "a fixed tree is for heads, one for each depth; this draft has one network for all depths"
            )
        tokens = lesson.ids[:, 1:].flatten()
        for depth, guess in enumerate(outlook.guesses):
            if depth == len(found):
                found.append(([0.0] * ranks, 0))
            kept = lesson.counts[guess.rows].nonzero()[:, 0]
            hits, seen = found[depth]
            for part in torch.split(kept, max(1, _CHUNK // teacher.target.config.vocab_size)):
                with teacher.computing():
                    logits = guess.head(guess.states[part])
                best = logits.topk(min(ranks, logits.shape[-1]), -1).indices
                best = best if guess.vocab is None else guess.vocab[best]
                right = (best == tokens[guess.rows[part]][:, None]).sum(0).tolist()
                hits = [a + b for a, b in zip(hits, [*right, *[0] * ranks], strict=False)]
            found[depth] = hits, seen + len(kept)
    return found


def measure_tree(
    directory: Path, target: str, data: Seq[str], *, nodes: int = 63, ranks: int = 10, texts: int = 256
) -> MeasuredTree:
    """Write DIRECTORY/tree.json for `nodes` nodes. Raises `ConfigError` for another target's draft, or none."""
    if not 1 <= nodes <= MOST_NODES:
        raise ConfigError(f"nodes={nodes}: a tree has 1 to {MOST_NODES}")
    if not data:
        raise ConfigError("there is nothing to measure on: name files with --data FILE that the draft has not learnt")
    place, source = user_path(directory), resolve(target)
    record = read_record(place)
    method = find_learner(record.kind)
    if not issubclass(find("drafter", method.drafter or record.kind).options, HeadOptions):
        raise ConfigError(f"{record.kind} takes no fixed tree: such a tree is for heads, one for each depth")
    decoder = load_model(source, record.dtype)
    require_target(record, directory, target, fingerprint(decoder))
    decoder.to(choose_format(None, decoder.dtype, decoder.device).dtype)  # the fingerprint is of what was trained for
    learner = method.load(method.options(), decoder, place)
    teacher = Teacher(decoder, learner.taps)
    with tempfile.TemporaryDirectory() as cache:
        corpus = open_corpus(
            find_files(data), load_codec(source), decoder.config.vocab_size, Path(cache), held_out=0.0
        )[0]
        length = min(256, decoder.config.max_len - 1)
        counted = count_ranks(learner, teacher, example_rows(corpus, texts, length, 4096), ranks)
    accuracies = tuple(tuple(hit / max(1, seen) for hit in hits) for hits, seen in counted)
    template = TemplateFile(paths=best_template(accuracies, nodes), accuracies=accuracies)
    if not template.paths:
        raise ConfigError(f"{directory} guesses no token of these texts right: there is no tree to choose")
    template.write(place / TREE)
    return MeasuredTree(
        path=place / TREE,
        template=template,
        expected=expected_tokens(accuracies, template.paths),
        guesses=counted[0][1],
    )
