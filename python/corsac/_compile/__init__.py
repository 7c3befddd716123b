"""``corsac.compile``: compiled modules and their recorded programs."""
