"""Retrieval: what followed the end of the text in a large datastore of other texts, as a tree of the likeliest.

He, Zhong, Cai, Lee and He, "REST: retrieval-based speculative decoding", 2023, https://arxiv.org/abs/2311.08252.
Data in: token ids, the pending one included; data out: a deterministic tree. The datastore is a file, made once by
`outdraft datastore build`; nothing is learned from requests.
"""

from dataclasses import dataclass

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.look_up.datastore.file import Datastore, DatastoreIndex, open_for
from outdraft.drafters.shared.look_up.span_index import look_up
from outdraft.drafters.shared.plain import OneByOne
from outdraft.kernels.text_index.suffix_array import CorpusQuery
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """Where to look, and how. Raises `ConfigError` naming what is out of range."""

    datastore: str = ""  # the file of `outdraft datastore build` that is searched; it must be given
    max_match: int = 16  # the longest end of the text that is looked up, in tokens
    # the shortest end of the text that is looked up, in tokens; without such a match nothing is drafted
    min_match: int = 2
    # of how many occurrences the continuations are counted; of more, an even sample of this size is taken
    max_hits: int = 5000
    nodes: int = 64  # how many nodes the tree has at most, the most frequent ones

    def __post_init__(self) -> None:
        check_range(self, "min_match", "max_match", least=1, most=MOST_NODES)
        if self.min_match > self.max_match:
            raise ConfigError(f"min_match={self.min_match}, max_match={self.max_match}: need min_match <= max_match")
        check_range(self, "max_hits", least=1)
        check_range(self, "nodes", least=1, most=MOST_NODES)


class RestDrafter(OneByOne):
    """Without state: the datastore is read-only."""

    traits = Traits(peeks=True)

    def __init__(self, options: RestOptions, store: Datastore) -> None:
        self._nodes = options.nodes
        self._index = DatastoreIndex(
            store,
            CorpusQuery(
                min_match=options.min_match,
                max_match=options.max_match,
                max_hits=options.max_hits,
                max_nodes=options.nodes,
            ),
        )

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """The heaviest continuations; node 0 alone if the datastore has not even the shortest end."""
        return look_up(self._index, seq, budget, max_nodes=self._nodes)


def build(options: RestOptions, port: TargetPort) -> RestDrafter:
    """Open the datastore. Raises `ConfigError` if there is none, or if its ids are not the target's."""
    if not options.datastore:
        raise ConfigError(
            "drafter 'rest' looks things up in a datastore: make one with `outdraft datastore build FILE --model MODEL "
            "--data DIRECTORY`, and name it in the drafter's option datastore=FILE"
        )
    return RestDrafter(options, open_for(options.datastore, port))


METHOD = DrafterMethod(
    name="rest",
    summary="look the end of the text up in a datastore of other texts on disk (no model)",
    build=build,
    options=RestOptions,
    paper=arxiv("2311.08252", "REST: retrieval-based speculative decoding"),
    shape_of=lambda options: "tree",
)
