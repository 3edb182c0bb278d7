"""A Hugging Face model in this process, with batches that requests join and leave."""
