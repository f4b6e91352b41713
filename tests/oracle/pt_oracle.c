/* A Processor Trace stream as libipt sees it: the reference the decoder is compared with.
 *
 *   pt_oracle [--cpu FAMILY/MODEL/STEPPING] [--clocks MTC_FREQ/EBX/EAX/NOMINAL_RATIO] packets|instructions|blocks STREAM
 *             [FILE:OFFSET:SIZE:ADDRESS ...]
 *
 * Prints that layer (listing.h). A FILE's part is code at an address; EBX and EAX are those of CPUID leaf 15H. Without
 * --cpu no errata are assumed. Numbers are as strtoull takes them with base 0.
 */
#include "listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *value, const char *why)
{
	fprintf(stderr, "pt_oracle: %s %s: %s\n", what, value, why);
	exit(2);
}

static void read_stream(struct pt_config *config, const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *stream;
	long size;

	if (!file)
		die("cannot read", path, strerror(errno));
	if (fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
		die("cannot size", path, strerror(errno));
	stream = malloc((size_t)size + 1);
	if (!stream || fread(stream, 1, (size_t)size, file) != (size_t)size)
		die("cannot read", path, "short read or out of memory");
	fclose(file);
	config->begin = stream;
	config->end = stream + size;
}

/* FILE:OFFSET:SIZE:ADDRESS */
static void add_section(struct pt_image *image, const char *spec)
{
	char *path = strdup(spec), *field[3];
	uint64_t number[3];
	int status;

	if (!path)
		die("section", spec, "out of memory");
	for (int i = 2; i >= 0; i--) {
		char *end;

		field[i] = strrchr(path, ':');
		if (!field[i])
			die("section", spec, "expected FILE:OFFSET:SIZE:ADDRESS");
		*field[i] = 0;
		number[i] = strtoull(field[i] + 1, &end, 0);
		if (*end)
			die("section", spec, "not a number");
	}
	status = pt_image_add_file(image, path, number[0], number[1], NULL, number[2]);
	if (status < 0)
		die("section", spec, pt_errstr(pt_errcode(status)));
	free(path);
}

/* NUMBER/NUMBER/..., as many as wanted */
static void numbers(const char *text, unsigned *into, int wanted)
{
	const char *rest = text;

	for (int i = 0; i < wanted; i++) {
		char *end;

		into[i] = (unsigned)strtoul(rest, &end, 0);
		if (end == rest || *end != (i + 1 < wanted ? '/' : 0))
			die("bad numbers", text, "see the head of pt_oracle.c");
		rest = end + 1;
	}
}

static int option(struct pt_config *config, const char *name, const char *value)
{
	unsigned number[4];

	if (!strcmp(name, "--cpu")) {
		numbers(value, number, 3);
		config->cpu = (struct pt_cpu){pcv_intel, (uint16_t)number[0], (uint8_t)number[1], (uint8_t)number[2]};
		return 1;
	}
	if (!strcmp(name, "--clocks")) {
		numbers(value, number, 4);
		config->mtc_freq = (uint8_t)number[0];
		config->cpuid_0x15_ebx = number[1];
		config->cpuid_0x15_eax = number[2];
		config->nom_freq = (uint8_t)number[3];
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pt_config config;
	struct pt_image *image = pt_image_alloc("oracle");
	int at = 1;

	pt_config_init(&config);
	while (at + 1 < argc && option(&config, argv[at], argv[at + 1]))
		at += 2;
	if (at + 1 >= argc)
		die("usage:", argv[0], "see the head of pt_oracle.c");
	if (config.cpu.vendor && pt_cpu_errata(&config.errata, &config.cpu) < 0)
		die("cpu", "errata", "not known");
	const char *layer = argv[at];
	read_stream(&config, argv[at + 1]);
	for (at += 2; at < argc; at++)
		add_section(image, argv[at]);
	if (!strcmp(layer, "packets"))
		list_packets(&config);
	else if (!strcmp(layer, "instructions"))
		list_instructions(&config, image, NULL);
	else if (!strcmp(layer, "blocks"))
		list_blocks(&config, image, NULL);
	else
		die("no such layer:", layer, "packets, instructions or blocks");
	pt_image_free(image);
	free(config.begin);
	return 0;
}
