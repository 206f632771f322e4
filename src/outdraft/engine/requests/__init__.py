"""What a request says, in whose words, and whether it can be done at all. It knows no part of the engine."""
