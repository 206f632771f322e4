"""What callers hold of an engine: prompts, calls from other threads, streams, results."""
