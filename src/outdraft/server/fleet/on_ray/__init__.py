"""Ray around engines: it places replicas on nodes, restarts them, scales and drains them (the extra `outdraft[ray]`).

Only public interfaces of Ray are used. Nothing here is imported before it is asked for, and Ray after this file:

Ray reads some settings from the environment, once, when it is imported, and the processes that it starts inherit them.
These make the pieces of a stream pass fewer of its threads on their way; our code blocks no event loop, because every
engine has a thread of its own. What is set already stays.
"""

import os

for _name, _value in (
    ("RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD", "0"),
    ("RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE", "1000"),
):
    os.environ.setdefault(_name, _value)
