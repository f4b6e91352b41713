"""From what a person calls a target to the processes meant on this node; no privilege, no container runtime."""
