/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files for the host, in the memory of an ivshmem device: what a recording was made of, to be
 * decoded there.
 */
#ifndef ARCHIVE_H
#define ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>

/* In front of each file; one without a name is the end. Files begin at multiples of 8. */
struct archived {
	char name[56];
	unsigned long size;
};

bool archive_open(void);
/* Files that are added from now on are NUMBER/NAME. */
void archive_folder(unsigned int number);
void *archive_room(size_t size, const char *format, ...) __attribute__((format(printf, 2, 3)));
void archive_add(const void *bytes, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void archive_close(void);

#endif
