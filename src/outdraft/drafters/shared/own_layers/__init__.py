"""The target as its own draft: some of its sublayers, other weights, or fewer keys."""
