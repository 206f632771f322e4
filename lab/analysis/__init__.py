"""What analyses records and formulas beside the shipped commands."""
