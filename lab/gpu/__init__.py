"""What a GPU shows of the engine: `lab/on_gpu.sh` runs all of it in under eight minutes."""
