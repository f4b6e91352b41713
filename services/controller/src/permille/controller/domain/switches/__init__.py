"""Switch records: when each thread of the target came onto a core and left it, from the kernel's sched_switch."""
