// SPDX-License-Identifier: GPL-2.0
/*
 * A program that is recorded (record_in_guest.py), whose code is never the same for long: pieces of
 * its file take turns at one place, as libraries do that are loaded and unloaded; children live for
 * less than a look at them would take; and some begin another program, which has the same addresses:
 * this one, built with OTHER, which begins it again.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PLACE ((void *)0x10000000)

/* Each alone on its page, and without anything that depends on where that is. */
#define PIECE(name) __attribute__((noinline, section("pieces." #name), aligned(PAGE))) name

static unsigned int PIECE(first)(unsigned int number)
{
	unsigned int sum = 0;

	for (unsigned int i = 0; i < 40; i++)
		sum += i & number ? i : 3 * sum;
	return sum;
}

static unsigned int PIECE(second)(unsigned int number)
{
	while (number > 40)
		number -= number & 2 ? number / 3 : number / 7;
	return number;
}

typedef unsigned int piece(unsigned int);
extern const char __executable_start[];
static volatile unsigned int sum;

#ifdef OTHER
static const char *const next = "reloading";
static piece *const work = second;
#else
static const char *const next = "reloading-other";
static piece *const work = first;
#endif

static void in_place(int file, piece *code)
{
	off_t at = (const char *)code - __executable_start;
	piece *placed = mmap(PLACE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, at);

	if (placed != MAP_FAILED)
		sum += placed(sum + 1000);
}

/* The other program of the two, with one round less to go. */
static void go_on(const char *self, const char *rounds)
{
	char path[256] = "", left[] = { rounds[0] - 1, '\0' };
	const char *name = strrchr(self, '/') + 1;

	memcpy(path, self, name - self);
	strcat(path, next);
	execl(path, path, left, NULL);
	_exit(1);
}

static void *sleep_for_ever(void *unused)
{
	for (;;)
		usleep(10000);
	return unused;
}

int main(int argc, char **argv)
{
	int file = open("/proc/self/exe", O_RDONLY);
	pthread_t thread;

	if (argc > 1) {
		in_place(file, work);
		if (argv[1][0] > '0')
			go_on(argv[0], argv[1]);
		return 0;
	}
	if (file < 0 || pthread_create(&thread, NULL, sleep_for_ever, NULL))
		return 1;
	for (;;) {
		in_place(file, first);
		in_place(file, second);
		if (!fork()) {
			in_place(file, work);
			_exit(0);
		}
		if (!vfork())
			go_on(argv[0], "4");
		while (wait(NULL) > 0)
			;
		usleep(1000);
	}
}
