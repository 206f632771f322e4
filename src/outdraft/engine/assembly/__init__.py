"""How an engine is put together: what the user said, recipes, memory, precision and the parts themselves."""
