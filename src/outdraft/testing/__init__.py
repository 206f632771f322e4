"""The test kit, which ships: stand-ins for every part, tiny models, and the contract suite that a plug-in must pass.

fakes       a scripted target and drafters, a reference rule        no network, exact distributions known
audit       a target that checks every pass and every commit
contract    one function an assertion; run them all on your own drafter (docs/add_a_method.md)
"""
