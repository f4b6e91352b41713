// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "recording.h"
#include "tap.h"

#define DEVICES "/sys/bus/pci/devices"

static char *at, *end;
static unsigned int folder;

/* ivshmem-plain: 1af4:1110, its memory is BAR 2. */
static int find(void)
{
	DIR *devices = opendir(DEVICES);
	struct dirent *entry;
	char path[512], id[16];
	int fd = -1;

	while (devices && fd < 0 && (entry = readdir(devices))) {
		snprintf(path, sizeof(path), DEVICES "/%s/device", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		memset(id, 0, sizeof(id));
		if (read(fd, id, sizeof(id) - 1) < 0)
			id[0] = 0;
		close(fd);
		fd = -1;
		if (strcmp(id, "0x1110\n"))
			continue;
		snprintf(path, sizeof(path), DEVICES "/%s/enable", entry->d_name);
		write_text(path, "1");
		snprintf(path, sizeof(path), DEVICES "/%s/resource2", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (devices)
		closedir(devices);
	return fd;
}

bool archive_open(void)
{
	struct stat about;
	int fd = find();

	if (!check(fd >= 0 && !fstat(fd, &about), "no ivshmem device"))
		return false;
	at = mmap(NULL, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (!check(at != MAP_FAILED, "the ivshmem device's memory cannot be mapped"))
		return false;
	end = at + about.st_size;
	return true;
}

void archive_folder(unsigned int number)
{
	folder = number;
}

static void *begin_file(size_t size, const char *format, va_list arguments)
{
	struct archived *file = (void *)at;
	void *room = file + 1;
	int length;

	if (!check(size < (size_t)(end - at) - 2 * sizeof(*file), "the archive is full"))
		return NULL;
	memset(file, 0, sizeof(*file));
	length = snprintf(file->name, sizeof(file->name), "%u/", folder);
	vsnprintf(file->name + length, sizeof(file->name) - length, format, arguments);
	file->size = size;
	at += sizeof(*file) + (size + 7) / 8 * 8;
	return room;
}

void *archive_room(size_t size, const char *format, ...)
{
	va_list arguments;
	void *room;

	va_start(arguments, format);
	room = begin_file(size, format, arguments);
	va_end(arguments);
	return room;
}

void archive_add(const void *bytes, size_t size, const char *format, ...)
{
	va_list arguments;
	void *room;

	va_start(arguments, format);
	room = begin_file(size, format, arguments);
	va_end(arguments);
	if (room)
		memcpy(room, bytes, size);
}

void archive_close(void)
{
	memset(at, 0, sizeof(struct archived));
}
