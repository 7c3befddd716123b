"""Models and their inputs as users give them: wrapper modules, functions, example inputs."""
