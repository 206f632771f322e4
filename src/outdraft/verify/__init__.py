"""Layer 2: the distribution of acceptance. One rule a file; `auto` picks among them; `shared` holds what several
use."""
