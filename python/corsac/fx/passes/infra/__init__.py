"""The frame that passes run in."""
