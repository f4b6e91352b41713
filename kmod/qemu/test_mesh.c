// SPDX-License-Identifier: GPL-2.0
/*
 * Under QEMU with a trace unit and a disk that holds permille (guest-root): a whole mesh of
 * permille's services records with the module. What it has to do and to find is `mesh_in_guest.py`;
 * each of its lines is one of ours.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"
#include "tap.h"
#include "tests.h"

#define ROOT "/disk"

/*
 * The disk's driver, in the order in which one needs the other; kernels have some of them built in.
 */
static void load_drivers(void)
{
	static const char *const names[] = { "virtio_ring", "virtio", "virtio_pci_modern_dev",
					     "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk" };
	char path[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int fd, failed;

		snprintf(path, sizeof(path), "/modules/%s.ko", names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		failed = syscall(SYS_finit_module, fd, "", 0) ? errno : 0;
		check(!failed || failed == EEXIST, "%s: %s", path, strerror(failed));
		close(fd);
	}
}

static bool mount_disk(void)
{
	for (int turns = 0; turns < 600 && access("/dev/vda", F_OK); turns++)
		usleep(100000);
	mkdir(ROOT, 0755);
	if (!check(!mount("/dev/vda", ROOT, "ext4", 0, NULL), "no disk: %s", strerror(errno)))
		return false;
	mount("/dev", ROOT "/dev", NULL, MS_MOVE, NULL);
	mkdir(ROOT "/dev/shm", 01777);
	mount("tmpfs", ROOT "/dev/shm", "tmpfs", 0, NULL);
	mount("proc", ROOT "/proc", "proc", 0, NULL);
	mount("sysfs", ROOT "/sys", "sysfs", 0, NULL);
	return true;
}

static void bring_up_loopback(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	check(!ioctl(fd, SIOCSIFFLAGS, &lo), "no loopback: %s", strerror(errno));
	close(fd);
}

static void run_script(void)
{
	const char *repository = getenv("repository"), *script = getenv("script");

	if (chroot(ROOT) || chdir(repository))
		_exit(126);
	setenv("PATH", "/usr/bin:/bin:/usr/sbin:/sbin", 1);
	setenv("HOME", "/root", 1);
	execl(".venv/bin/python", ".venv/bin/python", script, NULL);
	_exit(127);
}

void test_mesh(void)
{
	int status = 0;
	pid_t pid;

	check(module_info().backend != PERMILLE_BACKEND_MODEL, "back end %u",
	      module_info().backend);
	load_drivers();
	bring_up_loopback();
	if (!mount_disk())
		return;
	pid = fork();
	if (!pid)
		run_script();
	waitpid(pid, &status, 0);
	sync();
	check(WIFEXITED(status) && !WEXITSTATUS(status), "the script ended with %#x", status);
	result("the script has recorded what it had to");
	check(!umount2(ROOT "/dev/shm", MNT_DETACH) && !umount2(ROOT, MNT_DETACH),
	      "the disk cannot be unmounted");
}
