"""`python -m lab.soak_http`: many requests over HTTP, of which three in ten leave and some are broken.

    callers (this process) --- HTTP ---> a server in a process of its own, with planted faults
       |                                  small memory, prefix caching, speculation, a drafter that raises at times
       `-- LLM in this process: what each text must be, written alone and plainly

Every text that is whole must be the one that the model writes alone, every piece of one must be its beginning, and
every error must have a clean status and one clear sentence in OpenAI's shape. At the end nothing is under way, nothing
is left in the engine, neither memory nor open files have grown, and the process still answers.
"""
