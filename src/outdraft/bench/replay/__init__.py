"""A recorded trace, run again in simulated time through the engine's own loop and scheduler."""
