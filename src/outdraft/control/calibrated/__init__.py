"""Stop drafting by a calibrated confidence: the drafter's confidence is corrected by measured acceptance.

The map is fitted while texts are written, from the tokens that the target judges; where the calibrated chance of a path
no longer pays for one more token, drafting ends there.
"""

from outdraft.control.calibrated.policy import CalibratedOptions, build
from outdraft.core.method import Paper, PolicyMethod

METHOD = PolicyMethod(
    name="calibrated",
    summary="draft while a path's calibrated chance of acceptance pays for one more token",
    build=build,
    options=CalibratedOptions,
    paper=Paper(
        title="On calibration of modern neural networks",
        year=2017,
        link="https://arxiv.org/abs/1706.04599",
    ),
)
