"""The wire side of the allocator."""
