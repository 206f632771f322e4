"""What proves and measures outdraft and never ships with it."""
