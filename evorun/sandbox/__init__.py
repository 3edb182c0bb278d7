"""Runs untrusted programs within limits. Knows nothing of tasks."""

from evorun.sandbox.base import Case, CaseResult, Check, End, Execution, Limits, Program, Suite, Verdict
from evorun.sandbox.comparison import same_output
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import probe
from evorun.sandbox.pool import Sandbox
from evorun.sandbox.testing import test

__all__ = [
    "Case",
    "CaseResult",
    "Check",
    "End",
    "Execution",
    "Limits",
    "Program",
    "Sandbox",
    "SandboxConfig",
    "Suite",
    "Verdict",
    "probe",
    "same_output",
    "test",
]
