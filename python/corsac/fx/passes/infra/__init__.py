"""Infrastructure of passes: base classes, manager, partitioner."""
