"""Model files and safetensors files: saving and loading."""
