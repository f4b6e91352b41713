// SPDX-License-Identifier: GPL-2.0
/*
 * Four threads that hand a token on for ever: a program of its own, which is recorded
 * (record_in_guest.py). With a pause in each round, so that whoever reads its switch records keeps
 * up, however slow the machine is. What a thread executes is another thing in each round, so that
 * no round of a recording can be taken for another one.
 */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define THREADS 4

static int pipes[THREADS][2];

/* A path through the program for each number. */
static void branch_by(unsigned int number)
{
	for (; number; number >>= 1) {
		if (number & 1)
			__asm__ volatile("nop");
		__asm__ volatile("");
	}
}

static void *hand_on(void *number)
{
	unsigned int mine = (uintptr_t)number, round = 0;
	char token;

	while (read(pipes[mine][0], &token, 1) == 1) {
		branch_by(++round);
		if (!mine)
			usleep(10000);
		if (write(pipes[(mine + 1) % THREADS][1], &token, 1) != 1)
			break;
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;

	for (unsigned int i = 0; i < THREADS; i++)
		if (pipe(pipes[i]))
			return 1;
	for (uintptr_t i = 1; i < THREADS; i++)
		if (pthread_create(&thread, NULL, hand_on, (void *)i))
			return 1;
	if (write(pipes[0][1], "t", 1) != 1)
		return 1;
	hand_on(0);
	return 1;
}
