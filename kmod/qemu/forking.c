// SPDX-License-Identifier: GPL-2.0
/*
 * Has three children at work at any time, each for a while, and now and then one that shares its
 * memory: a program of its own, which is recorded (following_in_guest.py).
 */
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 3

static volatile unsigned int sum;

__attribute__((noinline)) static void child_work(void)
{
	for (unsigned int i = 0; i < 50; i++)
		sum += i;
}

__attribute__((noinline)) static void shared_work(void)
{
	for (unsigned int i = 0; i < 50; i++)
		sum -= i;
}

/* As posix_spawn begins a program: until it is over the caller waits. */
static void share_memory(void)
{
	pid_t pid = vfork();

	if (!pid) {
		for (int round = 0; round < 20; round++) {
			shared_work();
			usleep(1000);
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

int main(void)
{
	for (int children = 0;; children++) {
		if (children >= CHILDREN)
			wait(NULL);
		if (children % CHILDREN == 0)
			share_memory();
		if (fork())
			continue;
		for (int round = 0; round < 200; round++) {
			child_work();
			usleep(1000);
		}
		_exit(0);
	}
}
