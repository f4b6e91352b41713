// SPDX-License-Identifier: GPL-2.0
/*
 * A program whose calls are known, for `permille selftest --hardware`: a thousand of known_outer at
 * a time, three of known_inner each.
 */
#include <time.h>

static volatile unsigned int sum;

__attribute__((noipa)) void known_inner(unsigned int value)
{
	sum += value & 1 ? value : 1;
}

__attribute__((noipa)) void known_outer(unsigned int value)
{
	for (unsigned int i = 0; i < 3; i++)
		known_inner(value + i);
	sum++;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (unsigned int value = 0;; value++) {
		known_outer(value);
		if (value % 1000 == 999)
			nanosleep(&pause, NULL);
	}
}
