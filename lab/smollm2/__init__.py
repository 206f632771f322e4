"""What a small real chat model gives to learn from: prompts, its own answers, many at once on a GPU."""
