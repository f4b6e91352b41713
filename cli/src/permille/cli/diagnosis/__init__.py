"""What this machine can do, and what of the mesh runs."""
