"""Runs vLLM's asynchronous engine in a separate process."""
