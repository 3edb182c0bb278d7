"""vLLM's asynchronous engine in a process of its own."""
