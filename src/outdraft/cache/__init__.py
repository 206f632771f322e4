"""The memory of the past: keys and values of committed rows, and tentative rows beyond them."""
