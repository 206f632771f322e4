"""Other models made of one: cut, rounded, grown, adapted, packed for the native kernels."""
