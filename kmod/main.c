// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/*
 * permille: Processor Trace whose control costs by the number of cores, not by the scheduling rate.
 */
#include <linux/module.h>

#include "core.h"
#include "device.h"
#include "lifecycle.h"
#include "pins.h"
#include "probes.h"
#include "rtit.h"

static bool model;
module_param(model, bool, 0444);
MODULE_PARM_DESC(model, "a trace unit in memory instead of the processor's: for tests");

static bool emulated;
module_param(emulated, bool, 0444);
MODULE_PARM_DESC(emulated,
		 "the processor has the registers, but its CPUID does not say so: QEMU with the bench's plugin");

module_param_named(per_switch, permille_per_switch, bool, 0444);
MODULE_PARM_DESC(per_switch, "for comparison only: TraceEn on and off at every switch of a target");

static int __init permille_init(void)
{
	int failed = rtit_probe(model, emulated);

	if (failed) {
		pr_info("this processor has no Intel PT with ToPA output (CPUID leaf 14H)\n");
		return failed;
	}
	failed = probes_find();
	if (failed)
		return failed;
	failed = lifecycle_watch();
	if (failed)
		return failed;
	failed = control_device_register();
	if (failed)
		lifecycle_unwatch();
	return failed;
}

/* Nobody has the device open, so there is no session. */
static void __exit permille_exit(void)
{
	control_device_unregister();
	lifecycle_unwatch();
	probes_detach();
	pins_flush();
}

module_init(permille_init);
module_exit(permille_exit);

MODULE_DESCRIPTION("Operation-aware Processor Trace");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
