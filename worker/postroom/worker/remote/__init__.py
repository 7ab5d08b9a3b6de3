"""Remote agents: runs that somebody else's agent serves, over A2A 1.0."""
