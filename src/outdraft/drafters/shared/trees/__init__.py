"""Draft trees: how they grow, in which shape, and how their nodes are drawn together."""
