"""Adaptive n-gram counters."""

from outdraft.testing.spec_table import DrafterRow

ROWS = [DrafterRow(drafter="anpd")]
