"""All test doubles in one module: targets without a network, scripted drafters, a rule, a policy, a byte codec."""

from outdraft.testing.audit import AuditedTarget, AuditError
from outdraft.testing.reference_rule import ConstantPolicy, ReferenceRule
from tests.helpers.byte_codec import ByteCodec
from tests.helpers.recurrent_target import RecurrentTarget
from tests.helpers.scripted import RandomTreeDrafter, ScriptedDrafter, alternating, liar, oracle
from tests.helpers.table_target import TableTarget

__all__ = [
    "AuditError",
    "AuditedTarget",
    "ByteCodec",
    "ConstantPolicy",
    "RandomTreeDrafter",
    "RecurrentTarget",
    "ReferenceRule",
    "ScriptedDrafter",
    "TableTarget",
    "alternating",
    "liar",
    "oracle",
]
