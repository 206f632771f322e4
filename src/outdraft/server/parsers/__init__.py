"""What a model writes, taken apart for the wire: what it thinks, what it says, and the functions that it calls."""
