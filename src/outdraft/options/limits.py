"""The most that one request may bring, field by field: what its work or its memory grows with.

`SamplingParams` and the prompts' reader hold every caller to them, and the server's schemas refuse earlier what they
can; what the operator of a server decides is in `server/settings.py`. All of them: docs/limits.md.
"""

PLAIN_ID = r"^[A-Za-z0-9_.:-]{1,128}$"  # of a request: it stands in logs, in headers and in every chunk
LONGEST_NAME = 256  # characters of what only names something: a user, a salt, a method
MOST_METADATA = 16 * 1024  # characters of it as JSON
MOST_IDS = 1 << 16  # token ids of a list
MOST_BIASES = 4096  # of logits; lists of what is allowed or banned say more

MOST_STOPS, LONGEST_STOP = 64, 256  # of a request to the server: strings, characters of one
ALL_STOPS = 1 << 16  # characters of all stop strings of a request
MOST_BAD_WORDS, LONGEST_BAD_WORD = 1024, 256  # likewise
ALL_BAD_WORDS = 1 << 16  # characters of those that are texts, and tokens of all
LONGEST_PREFIX = 1 << 16  # characters of a forced prefix

MOST_REFERENCES = 256
ALL_REFERENCES = 1 << 20  # characters of those that are texts
REFERENCE_TOKENS = 1 << 17  # tokens of all: an index takes some hundred bytes for each
RESUMED_TOKENS = 1 << 20  # tokens that all texts of a request had written when they were cut off

MOST_PARTS = 4096  # of a conversation: messages, their parts and their calls together
MOST_TOOLS, ALL_TOOLS = 1024, 256 * 1024  # tools, bytes of all as JSON
MOST_VARIABLES, ALL_VARIABLES = 64, 256 * 1024  # of a chat template, bytes of all as JSON
DEEPEST = 128  # levels of a tool, and of a variable
LONGEST_CALL_ID = 4096  # characters; some servers keep a state in it
LONGEST_TEMPLATE = 128 * 1024  # characters of a request's own chat template
