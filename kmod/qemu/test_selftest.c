// SPDX-License-Identifier: GPL-2.0
/*
 * What a person with Intel PT runs, as far as a trace unit of QEMU's goes: its lines are notes
 * here.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"
#include "tests.h"
#include "unit/mark.h"

static void run_selftest(bool broken)
{
	bool found = false;
	int lines[2], status = -1;
	char line[256];
	FILE *told;
	pid_t pid;

	check(!pipe(lines), "no pipe");
	pid = fork();
	if (!pid) {
		dup2(lines[1], 1);
		execl("/selftest-hardware", "selftest-hardware", NULL);
		_exit(127);
	}
	close(lines[1]);
	told = fdopen(lines[0], "r");
	while (told && fgets(line, sizeof(line), told)) {
		printf("# %s", line);
		found |= !strncmp(line, "FAILED  a full buffer", 21);
	}
	if (told)
		fclose(told);
	waitpid(pid, &status, 0);
	check(broken ? found && WEXITSTATUS(status) == 1 : !status, "it ended with %#x", status);
	check(!module_info().sessions && !module_info().memory_used_bytes,
	      "something is left over");
	result(broken ?
	       "the self-test for hardware finds a unit that does not say that it has stopped" :
	       "the self-test for hardware finds nothing wrong");
}

/* First on a unit that does not say that it has stopped, which must be found */
void test_selftest(void)
{
	mark(MARK_HIDES_STOP);
	run_selftest(true);
	mark(MARK_TELLS_STOP);
	mark(MARK_NEXT_RECORDING);
	run_selftest(false);
	mark(MARK_NEXT_RECORDING);
}
