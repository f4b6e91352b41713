// SPDX-License-Identifier: GPL-2.0
/*
 * The first and only program of the guest: loads the module, runs the tests, switches the machine
 * off.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"
#include "tests.h"

static const struct {
	const char *name;
	void (*run)(void);
} groups[] = {
	{ "sessions", test_sessions },
	{ "records", test_switch_records },
	{ "processes", test_processes },
	{ "dead", test_dead_targets },
	{ "buffers", test_buffers },
	{ "refusals", test_refusals },
	{ "lifecycle", test_lifecycle },
	{ "operations", test_operations },
	{ "fuzz", test_fuzz },
	{ "loading", test_loading },
	{ "traced", test_traced },
	{ "perf", test_perf },
	{ "mesh", test_mesh },
	{ "selftest", test_selftest },
	{ "memory", test_memory },
	{ "neighbours", test_neighbours },
	{ "kexec", test_kexec },
};

static void mount_all(void)
{
	const struct rlimit files = { 16384, 16384 };
	int console;

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	console = open("/dev/console", O_RDWR);
	dup2(console, 0);
	dup2(console, 1);
	dup2(console, 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setrlimit(RLIMIT_NOFILE, &files);
}

long parameter(const char *name, long otherwise)
{
	return getenv(name) ? atol(getenv(name)) : otherwise;
}

/* Runs what `tests=` names in the environment, which is the kernel's command line. */
static void run_tests(void)
{
	const char *wanted = getenv("tests");

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (wanted && strstr(wanted, groups[i].name))
			groups[i].run();
}

/* A kernel that proves its locks gives up at its first complaint. */
static void check_locks_are_proved(void)
{
	char line[128];
	int proves = 1;
	FILE *file = fopen("/proc/lockdep_stats", "re");

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, " debug_locks: %d", &proves);
	if (file)
		fclose(file);
	check(proves, "the kernel has given up proving its locks");
}

void check_kernel_log(void)
{
	static const char *const complaints[] = {
		"BUG", "WARNING", "Oops", "Call Trace", "general protection", "UBSAN", "KASAN",
		"possible circular", "invalid context", "refcount_t", "bad page", "Bad page",
		"conflicting memory types", "freeing invalid memtype",
		/* Mapped with another caching than the kernel's own of the same pages */
		"map pfn RAM range",
		"suspected memory leak", "INFO: ",
	};
	static char log[1 << 20];
	int size = klogctl(3, log, sizeof(log) - 1);

	check_locks_are_proved();
	log[size > 0 ? size : 0] = 0;
	for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"))
		for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++)
			check(!strstr(line, complaints[i]), "%s", line);
	result("the kernel has nothing to complain about");
}

static void check_filter(void)
{
	long mismatches = read_number("/sys/module/permille/parameters/model_cr3_mismatches");

	check(!mismatches, "%ld switches with another CR3 than the filter would hold", mismatches);
	result("what the filter would hold is what CR3 held, at every switch");
}

/*
 * Else the kernel's own driver, which remembers what it has written, would trace into memory that
 * is not its own any more.
 */
static void check_registers(void)
{
	long moved = read_number("/sys/module/permille/parameters/model_moved");

	check(!moved, "%ld times a core was given back with other registers than before", moved);
	result("a core is given back with the registers that it had before");
}

/* `module=`, with commas between its parameters; else the trace unit in memory */
static const char *module_parameters(void)
{
	char *wanted = getenv("module");

	for (char *comma = wanted; comma && (comma = strchr(comma, ','));)
		*comma = ' ';
	return wanted ? wanted : "model=1";
}

int main(int count, char **arguments)
{
	if (!strcmp(arguments[0], "sleeper"))
		for (;;)
			usleep(10000);
	mount_all();
	printf("\n");
	check(!load_module(module_parameters()), "the module does not load");
	attach_probes();
	check(write_text("/sys/devices/system/cpu/cpu1/online", "1"),
	      "core 1 does not come online");
	result("the module loads");
	run_tests();
	check_filter();
	check_registers();
	check(!unload_module(), "the module does not unload");
	result("the module unloads");
	check_kernel_log();
	plan();
	sync();
	reboot(RB_POWER_OFF);
	return count;
}
