"""permille allocator: Plans trace buffers by how the target uses its cores, within a memory budget."""
