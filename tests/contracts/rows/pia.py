"""PIA's trie: branches of outputs stay, as far as the trie has room."""

from contracts.sides import stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="pia", options={"branch": 5, "min_match": 1, "max_nodes": 100, "nodes": 10}, remembers=True)]
GROUNDS = [DrafterRow(drafter="pia", target=stutterer)]
