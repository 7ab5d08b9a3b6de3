"""The words that travel and the Redis verbs that carry them."""
