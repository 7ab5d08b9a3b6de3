"""Plugins: what they may do, and the ones that come with the house."""
