/* The instruction flow of a Processor Trace stream as libipt sees it: the reference the decoder is compared with.
 *
 *   pt_oracle [--cpu FAMILY/MODEL/STEPPING] [--count] [--blocks] [--events] STREAM [IMAGE:OFFSET:SIZE:ADDRESS ...]
 *
 * Prints the address of every instruction, one a line in hexadecimal; with --blocks, by libipt's block decoder, "<first>
 * <last> <number>" for every run of instructions that follow one another in memory; with --count one line of counts;
 * with --events also the events of the instruction decoder, as "[<name> <values in hexadecimal>]", no status updates.
 * Errors go to the output as "error <stream offset, hexadecimal> <address> <text>"; decoding goes on at the next PSB.
 *
 * The two decoders of libipt differ where tracing is disabled by a TIP.PGD without address and no far transfer follows:
 * the instruction decoder fails, the block decoder ends the flow at the next branch that needs a packet.
 * Numbers are as strtoull takes them with base 0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

static uint8_t *stream;
static size_t stream_size;

static void die(const char *what, const char *value, const char *why)
{
	fprintf(stderr, "pt_oracle: %s %s: %s\n", what, value, why);
	exit(2);
}

static void read_stream(const char *path)
{
	FILE *file = fopen(path, "rb");
	long size;

	if (!file)
		die("cannot read", path, strerror(errno));
	if (fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
		die("cannot size", path, strerror(errno));
	stream_size = (size_t)size;
	stream = malloc(stream_size + 1);
	if (!stream || fread(stream, 1, stream_size, file) != stream_size)
		die("cannot read", path, "short read or out of memory");
	fclose(file);
}

/* IMAGE:OFFSET:SIZE:ADDRESS */
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
			die("section", spec, "expected IMAGE:OFFSET:SIZE:ADDRESS");
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

struct counts {
	uint64_t instructions, conditional_branches, returns, errors;
};

static void print_event(const struct pt_event *event)
{
	static int mode = -1;
	int suppressed = event->ip_suppressed;

	if (event->type == ptev_exec_mode) {
		/* Told again and again: only changes are of interest. */
		int changed = mode != (int)event->variant.exec_mode.mode;

		mode = (int)event->variant.exec_mode.mode;
		if (!changed)
			return;
	}
	if (event->status_update)
		return;
	switch (event->type) {
	case ptev_enabled:
		printf("[%s %" PRIx64 "]\n", event->variant.enabled.resumed ? "resumed" : "enabled",
		       event->variant.enabled.ip);
		break;
	case ptev_disabled:
		printf("[disabled");
		if (!suppressed)
			printf(" %" PRIx64, event->variant.disabled.ip);
		printf("]\n");
		break;
	case ptev_async_disabled:
		printf("[stopped %" PRIx64, event->variant.async_disabled.at);
		if (!suppressed)
			printf(" %" PRIx64, event->variant.async_disabled.ip);
		printf("]\n");
		break;
	case ptev_async_branch:
		printf("[interrupt %" PRIx64 " %" PRIx64 "]\n", event->variant.async_branch.from,
		       event->variant.async_branch.to);
		break;
	case ptev_paging:
		printf("[paging %" PRIx64 "]\n", event->variant.paging.cr3);
		break;
	case ptev_async_paging:
		printf("[paging %" PRIx64 "]\n", event->variant.async_paging.cr3);
		break;
	case ptev_overflow:
		printf("[overflow]\n");
		break;
	case ptev_exec_mode:
		printf("[mode %d]\n", event->variant.exec_mode.mode);
		break;
	case ptev_tsx:
		printf("[transaction %d %d]\n", event->variant.tsx.speculative, event->variant.tsx.aborted);
		break;
	case ptev_stop:
		printf("[trace stop]\n");
		break;
	case ptev_ptwrite:
		printf("[ptwrite %" PRIx64 "]\n", event->variant.ptwrite.payload);
		break;
	default:
		break;
	}
}

static void walk(struct pt_insn_decoder *decoder, int count_only, int events, struct counts *counts)
{
	for (;;) {
		struct pt_insn insn;
		uint64_t offset = 0;
		int status = pt_insn_sync_forward(decoder);

		if (status == -pte_eos)
			return;
		memset(&insn, 0, sizeof(insn));
		while (status >= 0) {
			while (status & pts_event_pending) {
				struct pt_event event;

				status = pt_insn_event(decoder, &event, sizeof(event));
				if (status < 0)
					break;
				if (events)
					print_event(&event);
			}
			if (status < 0 || status & pts_eos)
				break;
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			if (status < 0)
				break;
			counts->instructions++;
			counts->conditional_branches += insn.iclass == ptic_cond_jump;
			counts->returns += insn.iclass == ptic_return;
			if (!count_only)
				printf("%" PRIx64 "\n", insn.ip);
		}
		if (status >= 0 || status == -pte_eos)
			continue;
		counts->errors++;
		pt_insn_get_offset(decoder, &offset);
		if (!count_only)
			printf("error %" PRIx64 " %" PRIx64 " %s\n", offset, insn.ip, pt_errstr(pt_errcode(status)));
	}
}

static void walk_blocks(struct pt_block_decoder *decoder, int count_only, struct counts *counts)
{
	for (;;) {
		struct pt_block block;
		uint64_t offset = 0;
		int status = pt_blk_sync_forward(decoder);

		if (status == -pte_eos)
			return;
		memset(&block, 0, sizeof(block));
		while (status >= 0) {
			while (status & pts_event_pending) {
				struct pt_event event;

				status = pt_blk_event(decoder, &event, sizeof(event));
				if (status < 0)
					break;
			}
			if (status < 0 || status & pts_eos)
				break;
			memset(&block, 0, sizeof(block));
			status = pt_blk_next(decoder, &block, sizeof(block));
			/* A block that ran into an error has the instructions before it. */
			if (!block.ninsn)
				continue;
			counts->instructions += block.ninsn;
			counts->conditional_branches += block.iclass == ptic_cond_jump;
			counts->returns += block.iclass == ptic_return;
			if (!count_only)
				printf("%" PRIx64 " %" PRIx64 " %u\n", block.ip, block.end_ip, block.ninsn);
		}
		if (status >= 0 || status == -pte_eos)
			continue;
		counts->errors++;
		pt_blk_get_offset(decoder, &offset);
		if (!count_only)
			printf("error %" PRIx64 " %" PRIx64 " %s\n", offset, block.ip, pt_errstr(pt_errcode(status)));
	}
}

int main(int argc, char **argv)
{
	struct pt_config config;
	struct pt_image *image = pt_image_alloc("oracle");
	struct counts counts = {0};
	int at = 1, count_only = 0, blocks = 0, events = 0, status;

	pt_config_init(&config);
	config.cpu = (struct pt_cpu){.vendor = pcv_intel, .family = 6, .model = 94, .stepping = 3};
	for (; at < argc && !strncmp(argv[at], "--", 2); at++) {
		unsigned family, model, stepping;

		if (!strcmp(argv[at], "--count")) {
			count_only = 1;
		} else if (!strcmp(argv[at], "--blocks")) {
			blocks = 1;
		} else if (!strcmp(argv[at], "--events")) {
			events = 1;
		} else if (!strcmp(argv[at], "--cpu") && at + 1 < argc &&
			   sscanf(argv[at + 1], "%u/%u/%u", &family, &model, &stepping) == 3) {
			config.cpu.family = (uint16_t)family;
			config.cpu.model = (uint8_t)model;
			config.cpu.stepping = (uint8_t)stepping;
			at++;
		} else {
			die("bad option", argv[at], "see the head of pt_oracle.c");
		}
	}
	if (at >= argc)
		die("usage:", argv[0], "[--cpu F/M/S] [--count] [--blocks] [--events] STREAM [IMAGE:OFFSET:SIZE:ADDRESS ...]");
	read_stream(argv[at++]);
	status = pt_cpu_errata(&config.errata, &config.cpu);
	if (status < 0)
		die("cpu", "errata", pt_errstr(pt_errcode(status)));
	config.begin = stream;
	config.end = stream + stream_size;
	for (; at < argc; at++)
		add_section(image, argv[at]);
	if (blocks) {
		struct pt_block_decoder *decoder;

		config.flags.variant.block.end_on_call = 1;
		config.flags.variant.block.end_on_jump = 1;
		decoder = pt_blk_alloc_decoder(&config);
		if (!decoder || pt_blk_set_image(decoder, image) < 0)
			die("decoder", "for the stream", "could not be made");
		walk_blocks(decoder, count_only, &counts);
		pt_blk_free_decoder(decoder);
	} else {
		struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(&config);

		if (!decoder || pt_insn_set_image(decoder, image) < 0)
			die("decoder", "for the stream", "could not be made");
		walk(decoder, count_only, events, &counts);
		pt_insn_free_decoder(decoder);
	}
	if (count_only)
		printf("instructions %" PRIu64 " conditional_branches %" PRIu64 " returns %" PRIu64 " errors %" PRIu64 "\n",
		       counts.instructions, counts.conditional_branches, counts.returns, counts.errors);
	pt_image_free(image);
	free(stream);
	return 0;
}
