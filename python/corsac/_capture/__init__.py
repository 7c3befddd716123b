"""Capture by recording a call: graphs, guards, stages, and changes of state that are replayed."""
