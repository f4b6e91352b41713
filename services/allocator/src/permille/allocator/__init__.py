"""Plans trace buffers by how the target uses its cores or threads, within a memory budget."""
