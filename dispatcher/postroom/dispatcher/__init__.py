"""The client that other services import, and the commands an operator types."""
