"""What several acceptance rules use: the case to judge, the distribution of the next sibling, the residual."""
