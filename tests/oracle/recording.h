/* What vpt left in a process's folder, for the oracle: the image at an epoch, and the truth log (permille/vpt.h). */
#ifndef RECORDING_H
#define RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <permille/vpt.h>

struct file {
	uint8_t *bytes;
	size_t size;
};

/* Ends the program when there is no such file, unless it may be missing. */
struct file read_file(const char *path, bool may_be_missing);

struct recording {
	struct vpt_control *control;
	struct vpt_stream *stream;
	const uint8_t *packets;
	struct vpt_mark *marks; /* of this stream, in order of their offsets */
	size_t mark_count;
};

struct recording recording_open(const char *folder, unsigned stream);

/* The byte at an address as of an epoch; false where the image has none. */
bool image_byte(uint32_t epoch, uint64_t address, uint8_t *byte);

/* The truth log of a stream, instruction by instruction. */
enum truth { TRUTH_INSTRUCTION, TRUTH_GAP, TRUTH_END };
void truth_open(const char *folder, unsigned stream);
enum truth truth_next(uint64_t *address);

#endif
