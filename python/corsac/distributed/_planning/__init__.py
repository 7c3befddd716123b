"""Plans for more ranks than there are: the costs of meshes, without running them."""
