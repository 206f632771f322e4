r"""A tree of one form for every round, chosen from how often each rank of each head was right.

    accuracies   head 0: 0.6 0.2 ...      nodes, by the product along their path:   0        0.6
                 head 1: 0.5 0.1 ...                                               / \       0.2
                                            (0) 0.6  (0,0) 0.3  (1) 0.2  ...      0   1
                                                                                 /
                                                                                0            0.3

A node is added while there is room: the one with the largest product. Since no accuracy is over 1, that is the tree of
the most accepted tokens. Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. Data in: accuracies by head and
rank; data out: paths, which `shapes.Template` grows, and their file.
"""

import heapq
import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.ranges import MOST_NODES
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown

Ranks = tuple[int, ...]  # the rank of each node on the way


def best_template(accuracies: Seq[Seq[float]], nodes: int) -> tuple[Ranks, ...]:
    """The `nodes` nodes of the largest products, in the order in which they are added; fewer if there are no more.

    `accuracies[i][r]`: how often the token of rank r of head i is right. A rank counts for no more than a better one of
    its head, so that elder siblings come first.
    """
    heads = [[min(row[: rank + 1]) for rank in range(len(row))] for row in accuracies]
    made: list[Ranks] = []
    waiting: list[tuple[float, Ranks]] = []

    def offer(above: float, path: Ranks) -> None:
        head, rank = len(path) - 1, path[-1]
        if head < len(heads) and rank < len(heads[head]) and above * heads[head][rank] > 0:
            heapq.heappush(waiting, (-above * heads[head][rank], path))

    offer(1.0, (0,))
    while waiting and len(made) < nodes:
        weight, path = heapq.heappop(waiting)
        made.append(path)
        offer(-weight, (*path, 0))
        offer(-weight / heads[len(path) - 1][path[-1]], (*path[:-1], path[-1] + 1))
    return tuple(made)


def expected_tokens(accuracies: Seq[Seq[float]], paths: Seq[Ranks]) -> float:
    """Tokens a round, the target's own included, if heads were right independently of each other."""
    total = 1.0
    for path in paths:
        product = 1.0
        for head, rank in enumerate(path):
            product *= accuracies[head][rank]
        total += product
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFile:
    """A template on disk, and what it was chosen from."""

    paths: tuple[Ranks, ...]
    accuracies: tuple[tuple[float, ...], ...] = ()

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        told = {"paths": [list(one) for one in self.paths], "accuracies": [list(row) for row in self.accuracies]}
        with new_file(path) as beside:
            beside.write_text(json.dumps(told) + "\n", encoding="utf-8")


def read_template(path: Path) -> TemplateFile:
    """Raises `ConfigError` for a file that holds no tree of ranks."""
    try:
        raw = load_json(path)
        paths = tuple(tuple(one) for one in raw["paths"])
        accuracies = tuple(tuple(float(rate) for rate in row) for row in raw.get("accuracies", ()))
    except OSError as error:
        raise ConfigError(f"the tree {path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path} holds no tree ({error!r}): it is written by `outdraft train tree`") from error
    for one in paths:
        if not one or not all(type(rank) is int and 0 <= rank < MOST_NODES for rank in one):
            raise ConfigError(f"{path}: {shown(list(one))} is no path of ranks 0, 1, 2, ...")
    known = {(), *paths}
    for one in paths:
        if one[:-1] not in known or (one[-1] and (*one[:-1], one[-1] - 1) not in known):
            raise ConfigError(f"{path}: the node {list(one)} lacks its parent, or its elder sibling")
    if not 1 <= len(paths) <= MOST_NODES:
        raise ConfigError(f"{path} holds {len(paths)} nodes: a tree has 1 to {MOST_NODES}")
    return TemplateFile(paths=paths, accuracies=accuracies)
