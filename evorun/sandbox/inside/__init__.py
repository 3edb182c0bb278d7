"""Modules that run inside the sandbox. They use only the standard library: the interpreter cannot see the project."""
