"""What a plan of cores needs to know of its node, read from /proc, /sys and the cgroups."""
