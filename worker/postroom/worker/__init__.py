"""The runtime that takes runs up and carries them through."""
