// SPDX-License-Identifier: GPL-2.0
#include <linux/cpuhotplug.h>
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "core.h"
#include "lifecycle.h"
#include "session.h"

/* On the core that leaves. Sessions cannot go away meanwhile: they wait for the hotplug lock. */
static int core_offline(unsigned int cpu)
{
	struct permille_core *core;
	unsigned long flags;

	this_cpu_inc(permille_departures);
	local_irq_save(flags);
	core = this_cpu_read(permille_active_core);
	if (core)
		core_end(core, PERMILLE_END_OFFLINE);
	local_irq_restore(flags);
	if (core)
		hrtimer_cancel(&core->timer);
	return 0;
}

static int on_power(struct notifier_block *block, unsigned long event, void *data)
{
	switch (event) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:
		sessions_pause(PERMILLE_END_SLEEP);
		break;
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		sessions_resume();
		break;
	}
	return NOTIFY_OK;
}

static int on_reboot(struct notifier_block *block, unsigned long event, void *data)
{
	sessions_pause(PERMILLE_END_SLEEP);
	return NOTIFY_OK;
}

static struct notifier_block power = { .notifier_call = on_power };
static struct notifier_block rebooting = { .notifier_call = on_reboot };
static int hotplug_state;

int lifecycle_watch(void)
{
	int failed;

	hotplug_state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "permille:core", NULL,
						  core_offline);
	if (hotplug_state < 0)
		return hotplug_state;
	failed = register_pm_notifier(&power);
	if (failed)
		goto no_power;
	failed = register_reboot_notifier(&rebooting);
	if (failed)
		goto no_reboot;
	return 0;

no_reboot:
	unregister_pm_notifier(&power);
no_power:
	cpuhp_remove_state_nocalls(hotplug_state);
	return failed;
}

void lifecycle_unwatch(void)
{
	unregister_reboot_notifier(&rebooting);
	unregister_pm_notifier(&power);
	cpuhp_remove_state_nocalls(hotplug_state);
}
