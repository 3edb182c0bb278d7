"""What runs inside the sandbox: standard library only, sent to a fresh interpreter that cannot see the project."""
