/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cores that go offline, machines that sleep, reboot or start another kernel: tracing ends first.
 */
#ifndef PERMILLE_LIFECYCLE_H
#define PERMILLE_LIFECYCLE_H

int lifecycle_watch(void);
void lifecycle_unwatch(void);

#endif
