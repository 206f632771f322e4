"""Floor 2: the law of acceptance. One rule a file; `auto` picks among them; `shared` holds what several use."""
