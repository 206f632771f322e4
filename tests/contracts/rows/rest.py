"""Retrieval from a datastore."""

from contracts.sides import datastore

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="rest", options={"nodes": 10}, side=datastore)]
