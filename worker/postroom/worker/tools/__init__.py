"""Tools: what they are, how they are run, and the ones that come with the house."""
