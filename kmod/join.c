// SPDX-License-Identifier: GPL-2.0
/*
 * A process becomes a target after setup: it came into the group that is recorded otherwise than by
 * a target's fork.
 */
#include <linux/errno.h>

#include "session.h"
#include "validate.h"

static int refuse_process(struct permille_process *process, u32 refusal, u32 value, int error)
{
	process->refusal = refusal;
	process->refused_value = value;
	return error;
}

/* Fails with process->refusal telling why. */
int session_join(struct permille_session *session, struct permille_process *process)
{
	int failed;

	process->refusal = PERMILLE_REFUSED_NOT;
	process->refused_value = 0;
	if (process->version != PERMILLE_UAPI_VERSION)
		return refuse_process(process, PERMILLE_REFUSED_VERSION, PERMILLE_UAPI_VERSION,
				      -EINVAL);
	if (process->reserved)
		return refuse_process(process, PERMILLE_REFUSED_RESERVED, process->reserved,
				      -EINVAL);
	if (!sees_all_processes())
		return refuse_process(process, PERMILLE_REFUSED_NAMESPACE, 0, -EPERM);
	if (session_state(session) == PERMILLE_ENDED)
		return refuse_process(process, PERMILLE_REFUSED_ENDED, 0, -EALREADY);
	failed = session_add_process(session, process->pid);
	if (failed)
		return refuse_process(process, refusal_of_process(failed), process->pid, failed);
	return 0;
}
