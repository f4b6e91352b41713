"""What a plan needs to know of its node, read from /proc, /sys and the cgroups; for whoever runs beside the target."""
