"""Building blocks of passes."""
