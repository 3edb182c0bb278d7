"""Runs a Hugging Face model in this process, with continuous batching."""
