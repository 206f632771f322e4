"""The frame in which drafts learn (`outdraft train`), whatever their kind.

    plan -- course: target, learner, texts -- loop: steps, evaluations, checkpoints -- promise -- check

What a kind learns, its learner says (`core/learner.py`); losses and the optimiser's step are `outdraft.learn`. What
makes the zoo, and trials of several ways, are in the checkout's `lab`.
"""
