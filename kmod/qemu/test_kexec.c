// SPDX-License-Identifier: GPL-2.0
/*
 * Under QEMU with a trace unit: another kernel is begun while a session runs, and comes into this
 * program again, where the module would find TraceEn set by somebody else. It has `again` on its
 * command line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

static void begin_another_kernel(void)
{
	int kernel = open("/next/kernel", O_RDONLY | O_CLOEXEC);
	int files = open("/next/initramfs", O_RDONLY | O_CLOEXEC);
	char line[4096] = {}, *end;
	int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, line, sizeof(line) - 16);

	close(fd);
	if (!check(size > 0, "no command line"))
		return;
	end = strchrnul(line, '\n');
	strcpy(end, " again=1");
	check(!syscall(SYS_kexec_file_load, kernel, files, strlen(line) + 1, line, 0),
	      "kexec_file_load: %s", strerror(errno));
	syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	check(false, "kexec: %s", strerror(errno));
}

void test_kexec(void)
{
	struct load load = load_endless(4, -1);
	struct recording r;

	propose(&r, load.pid, 0, CORES);
	record(&r);
	/* Refused where the kernel before has left TraceEn set */
	for (unsigned int i = 0; i < CORES; i++)
		while (session_status(&r).state == PERMILLE_ACTIVE && !core_status(&r, i).tracing)
			usleep(10000);
	if (!parameter("again", 0)) {
		note("both cores record when the next kernel is begun");
		begin_another_kernel();
	}
	conclude(&r, &load,
		 "a kernel that is begun while a session runs (kexec) finds the trace units off, and records");
}
