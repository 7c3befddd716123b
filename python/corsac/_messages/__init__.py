"""Source lines, times and lists as text, and log messages."""
