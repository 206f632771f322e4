"""Many requests out of a file, exactly once each, on however many machines, however often the run is killed."""
