/* libipt against the truth: decodes one stream of a process that vpt recorded in truth mode, and compares.
 *
 *   vpt_oracle FOLDER STREAM
 *
 * Prints one line, "equal N gaps N errors N missing N beyond N", and for a difference another one before it. The exit
 * code is 0 when every instruction that libipt decodes is the one that ran, 1 when not. In front of a gap (OVF) and at
 * the end libipt may know less than what ran (missing: in the last stretch) or, at the end, more (beyond: direct jumps
 * say where the program was to go).
 */
#include "recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

static struct recording recording;
static uint32_t epoch;
static uint64_t equal, gaps, errors, missing, beyond;
static enum truth last = TRUTH_INSTRUCTION;

static int read_image(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	size_t got = 0;

	(void)asid, (void)context;
	while (got < size && image_byte(epoch, ip + got, &buffer[got]))
		got++;
	return got ? (int)got : -pte_nomap;
}

/*
 * The image as of the decoder's position. A mark at a TIP holds as soon as that is used up, any other when tracing is
 * enabled: libipt reads the packets in between ahead.
 */
static void follow_marks(uint64_t offset, bool enabled)
{
	static size_t next;

	for (; next < recording.mark_count && recording.marks[next].offset < offset; next++) {
		bool tip = (recording.packets[recording.marks[next].offset] & 0x1f) == 0x0d;

		if (!tip && !enabled)
			break;
		epoch = recording.marks[next].epoch;
	}
}

/* False at a difference. */
static bool compare(uint64_t ip, uint64_t offset)
{
	uint64_t truth;

	if (last != TRUTH_INSTRUCTION) {
		beyond++;
		return true;
	}
	last = truth_next(&truth);
	if (last != TRUTH_INSTRUCTION) {
		beyond++;
		return true;
	}
	if (truth != ip) {
		printf("instruction %" PRIu64 ": truth %" PRIx64 " libipt %" PRIx64 " at offset %" PRIx64 "\n", equal, truth, ip,
		       offset);
		return false;
	}
	equal++;
	return true;
}

/* Goes to behind the next gap, or to the end. */
static void skip_stretch(void)
{
	uint64_t truth;

	for (missing = 0; last == TRUTH_INSTRUCTION; missing++)
		last = truth_next(&truth);
	if (missing)
		missing--;
	if (last == TRUTH_GAP) {
		gaps++;
		last = TRUTH_INSTRUCTION;
		beyond = 0;
	}
}

static bool walk(struct pt_insn_decoder *decoder)
{
	uint64_t offset = 0;

	for (int status; (status = pt_insn_sync_forward(decoder)) >= 0;) {
		pt_insn_get_offset(decoder, &offset);
		follow_marks(offset + 1, true);
		while (status >= 0) {
			struct pt_insn insn;
			struct pt_event event;

			while (status >= 0 && status & pts_event_pending) {
				status = pt_insn_event(decoder, &event, sizeof(event));
				pt_insn_get_offset(decoder, &offset);
				follow_marks(offset, event.type == ptev_enabled);
				if (event.type == ptev_overflow)
					skip_stretch();
			}
			if (status < 0)
				break;
			memset(&insn, 0, sizeof(insn));
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			pt_insn_get_offset(decoder, &offset);
			follow_marks(offset, false);
			if (insn.iclass != ptic_error && !compare(insn.ip, offset))
				return false;
		}
		pt_insn_get_offset(decoder, &offset);
		/* What comes behind the last packet has not run: its code may be unknown. */
		if (status == -pte_eos || offset == recording.stream->written_bytes)
			break;
		errors++;
		printf("error at offset %" PRIx64 ": %s\n", offset, pt_errstr(pt_errcode(status)));
		return false;
	}
	skip_stretch();
	return true;
}

static struct pt_insn_decoder *decoder_of(const struct vpt_control *control)
{
	struct pt_config config;

	pt_config_init(&config);
	config.cpu = (struct pt_cpu){pcv_intel, (uint16_t)control->family, (uint8_t)control->model, (uint8_t)control->stepping};
	config.begin = (uint8_t *)recording.packets;
	config.end = config.begin + recording.stream->written_bytes;
	config.mtc_freq = (uint8_t)control->mtc_freq;
	config.nom_freq = (uint8_t)control->nominal_ratio;
	config.cpuid_0x15_eax = control->tsc_ctc_den;
	config.cpuid_0x15_ebx = control->tsc_ctc_num;
	if (pt_cpu_errata(&config.errata, &config.cpu) < 0)
		return NULL;
	return pt_insn_alloc_decoder(&config);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s FOLDER STREAM\n", argv[0]);
		return 2;
	}
	unsigned number = (unsigned)strtoul(argv[2], NULL, 10);
	recording = recording_open(argv[1], number);
	truth_open(argv[1], number);
	struct pt_insn_decoder *decoder = decoder_of(recording.control);
	if (!decoder || pt_image_set_callback(pt_insn_get_image(decoder), read_image, NULL) < 0) {
		fprintf(stderr, "%s: libipt refuses the configuration\n", argv[0]);
		return 2;
	}
	bool same = walk(decoder);
	printf("equal %" PRIu64 " gaps %" PRIu64 " errors %" PRIu64 " missing %" PRIu64 " beyond %" PRIu64 "\n", equal, gaps,
	       errors, missing, beyond);
	return !same;
}
