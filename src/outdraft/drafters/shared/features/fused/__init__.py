"""A network that fuses several of the target's states into one feature, before a first layer that is twice as wide."""
