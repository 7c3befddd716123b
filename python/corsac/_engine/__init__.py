"""Graphs on the engine: options, compilation, modules that run them, profiles."""
