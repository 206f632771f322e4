"""From the words of `LLM(model, drafter=...)` to typed plug-ins and their options."""
