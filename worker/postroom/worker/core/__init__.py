"""The pure part of the agent loop: no Redis, no HTTP, no clock, no chance."""
