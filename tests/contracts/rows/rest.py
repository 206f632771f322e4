"""Retrieval from a datastore."""

from contracts.sides import datastore, stutterer

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="rest", options={"nodes": 10}, side=datastore)]
GROUNDS = [DrafterRow(drafter="rest", target=stutterer, side=datastore)]
