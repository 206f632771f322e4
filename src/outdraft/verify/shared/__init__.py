"""What several acceptance rules use: the case to judge, the law of the next sibling, the residual."""
