"""Modules that run inside the sandbox: standard library only, sent to an interpreter that cannot see the project."""
