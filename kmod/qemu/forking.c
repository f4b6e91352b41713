// SPDX-License-Identifier: GPL-2.0
/*
 * Has three children at work at any time, each for a while: a program of its own, which is recorded
 * (following_in_guest.py).
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

int main(void)
{
	for (int children = 0;; children++) {
		if (children >= CHILDREN)
			wait(NULL);
		if (fork())
			continue;
		for (int round = 0; round < 200; round++) {
			child_work();
			usleep(1000);
		}
		_exit(0);
	}
}
