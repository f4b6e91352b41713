/* SPDX-License-Identifier: GPL-2.0 */
/* The tracepoints that sessions listen to, attached while there is one. */
#ifndef PERMILLE_PROBES_H
#define PERMILLE_PROBES_H

int probes_find(void);
int probes_get(void);	/* under the sessions' mutex, like the next */
void probes_put(void);
void probes_drain(void);

#endif
