"""The test kit, which ships: stand-ins, tiny models, and the contract suite that a plug-in must pass.

audit           a target that checks every pass and every commit
contract        one function an assertion; run them all on your own drafter (docs/add_a_method.md)
"""
