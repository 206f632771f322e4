"""Every stand-in by one door: a target without a network, drafters with a script, a rule, a policy, a byte codec."""

from outdraft.codecs.bytes import ByteCodec
from outdraft.testing.audit import AuditedTarget, AuditError
from outdraft.testing.reference_rule import ConstantPolicy, ReferenceRule
from outdraft.testing.scripted import RandomTreeDrafter, ScriptedDrafter, alternating, liar, oracle
from outdraft.testing.table_target import TableTarget

__all__ = [
    "AuditError",
    "AuditedTarget",
    "ByteCodec",
    "ConstantPolicy",
    "RandomTreeDrafter",
    "ReferenceRule",
    "ScriptedDrafter",
    "TableTarget",
    "alternating",
    "liar",
    "oracle",
]
