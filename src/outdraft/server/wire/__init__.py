"""What the engine has written, in the words of the wire: usage, log probabilities, statistics of speculation."""
