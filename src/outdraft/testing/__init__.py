"""The test kit, which ships: stand-ins, tiny models, and the contract suite that a plug-in must pass.

table_target    a target without a network, its exact distributions known
audit           a target that checks every pass and every commit
contract        one function an assertion; run them all on your own drafter (docs/add_a_method.md)
"""
