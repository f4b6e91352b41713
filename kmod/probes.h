/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints that sessions listen to, attached by the first session. Attaching and detaching
 * patches the scheduler's code, which interrupts every core of the machine several times; staying
 * attached costs a switch one load. So they stay until the module goes.
 */
#ifndef PERMILLE_PROBES_H
#define PERMILLE_PROBES_H

int probes_find(void);
int probes_attach(void);	/* under the sessions' mutex */
void probes_detach(void);

#endif
