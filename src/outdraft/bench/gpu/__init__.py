"""What a GPU does with the engine, measured in minutes by one command: `python -m outdraft.bench.gpu`."""
