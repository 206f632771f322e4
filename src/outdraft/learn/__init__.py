"""What learns by gradients needs, wherever it stands: losses on guesses, the optimiser's step, states that are saved.

    guesses, lesson -- compare, losses --> a loss -- step --> weights -- save --> a file

It knows the learner's contract (`core/learner.py`) and no model, so a drafter that learns beside an engine takes the
same step as `outdraft train` does.
"""
