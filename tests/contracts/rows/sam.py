"""Suffix automata: alone, and in front of another drafter, with a datastore."""

from contracts.sides import datastore, stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [
    DrafterRow(drafter="sam", options={"min_match": 1}),
    DrafterRow(
        drafter="sam",
        label="mixed",
        options={"bias": 0, "min_match": 3, "otherwise": "contracts.stutter:METHOD"},
        side=datastore,
    ),
    DrafterRow(drafter="sam", label="sam_decoding", options={"otherwise": "contracts.stutter:METHOD"}),
]
GROUNDS = [
    DrafterRow(drafter="sam", label="sam_decoding", target=stutterer, options={"otherwise": "contracts.stutter:METHOD"})
]
