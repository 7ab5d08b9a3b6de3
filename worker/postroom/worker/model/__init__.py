"""Models: what is asked of them, how they answer, and who they are."""
