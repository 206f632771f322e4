"""Settings of every test run: one thread, so that workers do not fight, and fixed randomness for hypothesis."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("outdraft", deadline=None, derandomize=True)
settings.load_profile("outdraft")
