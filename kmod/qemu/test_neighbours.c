// SPDX-License-Identifier: GPL-2.0
/*
 * What a session is to others on the machine: programs that are no targets, processes that are
 * handed its file, KVM.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"

#define ROUNDS 2000
#define MODULES "/sys/module"
#define PT_MODE MODULES "/kvm_intel/parameters/pt_mode"

/* The hook counts what it does, and does nothing for them. */
static void others_switches(void)
{
	struct load target = load_begin(2, 1), other = load_begin(2, 1);
	struct permille_core_status core;
	struct recording r;
	long before;

	load_finish(&target);
	propose(&r, target.pid, 1, 1);
	record(&r);
	before = switches_of(other.pid, 0);
	load_go(&other, ROUNDS);
	load_finish(&other);
	core = core_status(&r, 0);
	check(switches_of(other.pid, 0) - before >= ROUNDS, "only %ld switches",
	      switches_of(other.pid, 0) - before);
	check(!core.hook_calls && !core.records && !core.operations_on && !core.trace_bytes,
	      "%llu calls of the hook, %llu records, %llu on, %llu bytes", core.hook_calls,
	      core.records, core.operations_on, core.trace_bytes);
	load_go(&target, 10);
	load_finish(&target);
	core = core_status(&r, 0);
	check(core.hook_calls >= 10 && core.operations_on == 1,
	      "%llu calls of the hook for the target, %llu on", core.hook_calls,
	      core.operations_on);
	close_recording(&r);
	load_kill(&other);
	conclude(&r, &target,
		 "switches among programs that are no targets cost no call, no record and no operation");
}

static void send_file(int socket, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);

	*control = (struct cmsghdr) { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				      .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(control), &fd, sizeof(fd));
	check(sendmsg(socket, &message, 0) == 1, "not sent: %s", strerror(errno));
}

static int receive_file(int socket)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/*
 * In another process, without privileges: what it can make of a file that was opened by root. 0, or
 * what it could.
 */
static int use_passed(int socket)
{
	struct recording r;
	int fd;

	propose(&r, getppid(), 0, 1);
	if (setgid(65534) || setuid(65534))
		return 1;
	fd = receive_file(socket);
	if (fd < 0)
		return 2;
	if (!ioctl(fd, PERMILLE_IOC_SETUP, &r.setup) || errno != EPERM)
		return 3;
	if (!ioctl(fd, PERMILLE_IOC_START) || errno != ENODATA)
		return 4;
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, PERMILLE_MMAP_TRACE(0)) != MAP_FAILED)
		return 5;
	return 0;
}

static void passed_file(void)
{
	int fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC), ends[2], status;
	pid_t pid;

	check(fd >= 0 && !socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "%s", strerror(errno));
	pid = fork();
	if (!pid) {
		close(fd);
		_exit(use_passed(ends[1]));
	}
	send_file(ends[0], fd);
	waitpid(pid, &status, 0);
	check(!status, "it could do number %d", WEXITSTATUS(status));
	check(!module_info().sessions, "%u sessions", module_info().sessions);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	result("a file of the device that is passed on gives a process without CAP_PERFMON no session");
}

static void refused_by_kvm(const char *mode, int failure, unsigned int refusal)
{
	struct recording r;
	int failed;

	check(write_text(PT_MODE, mode), "%s", strerror(errno));
	propose(&r, 1, 0, 1);
	failed = set_up(&r);
	check(failed == failure && r.setup.refusal == refusal, "pt_mode %s: %s, refusal %u", mode,
	      strerror(failed), r.setup.refusal);
	close_recording(&r);
}

/* In a child with a root where there is no /sys: what is refused to others is refused to it. */
static int refusal_in_another_root(void)
{
	struct recording r;

	propose(&r, 1, 0, 1);
	r.fd = open(PERMILLE_DEVICE, O_RDWR | O_CLOEXEC);
	if (mkdir("/empty", 0755) || chroot("/empty") || chdir("/"))
		return -1;
	return ioctl(r.fd, PERMILLE_IOC_SETUP, &r.setup) ? (int)r.setup.refusal : 0;
}

static void refused_in_another_root(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(refusal_in_another_root());
	waitpid(pid, &status, 0);
	check(WIFEXITED(status) && WEXITSTATUS(status) == PERMILLE_REFUSED_KVM, "ended with %#x",
	      status);
}

static void refused_without_sysfs(void)
{
	struct recording r;
	int failed;

	check(!mount("tmpfs", "/sys", "tmpfs", 0, NULL), "no mount: %s", strerror(errno));
	propose(&r, 1, 0, 1);
	failed = set_up(&r);
	check(failed == ENOENT && r.setup.refusal == PERMILLE_REFUSED_PERF, "%s, refusal %u",
	      strerror(failed), r.setup.refusal);
	close_recording(&r);
	check(!umount("/sys"), "no umount: %s", strerror(errno));
}

/* KVM itself does not run here; what the module reads of it is put in its place. */
static void kvm(void)
{
	reload_module("emulated=1");
	check(!mount("tmpfs", MODULES, "tmpfs", 0, NULL), "no mount: %s", strerror(errno));
	mkdir(MODULES "/kvm_intel", 0755);
	mkdir(MODULES "/kvm_intel/parameters", 0755);
	close(open(PT_MODE, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	refused_by_kvm("1\n", EBUSY, PERMILLE_REFUSED_KVM);
	refused_in_another_root();
	refused_by_kvm("0\n", 0, PERMILLE_REFUSED_NOT);
	check(!umount(MODULES), "no umount: %s", strerror(errno));
	refused_without_sysfs();
	reload_module("model=1");
	result("where kvm_intel says that its guests use the trace unit (pt_mode=1), or nothing tells, setup is refused, whatever root the owner has");
}

void test_neighbours(void)
{
	others_switches();
	passed_file();
	kvm();
}
