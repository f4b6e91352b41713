/* libipt against the truth: decodes one stream of a process that vpt recorded in truth mode, and compares.
 *
 *   vpt_oracle FOLDER STREAM
 *
 * Prints one line, "equal N gaps N errors N missing N beyond N", and for a difference another one before it. The exit
 * code is 0 when every instruction that libipt decodes is the one that ran, 1 when not. In front of a gap (OVF) and at
 * the end libipt may know less than what ran (missing: in the last stretch) or, at the end, more (beyond: direct jumps
 * say where the program was to go).
 */
#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

static struct recording recording;
static uint64_t equal, gaps, errors, missing, beyond;
static enum truth last = TRUTH_INSTRUCTION;

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
		replay_follow(offset + 1, true);
		while (status >= 0) {
			struct pt_insn insn;
			struct pt_event event;

			while (status >= 0 && status & pts_event_pending) {
				status = pt_insn_event(decoder, &event, sizeof(event));
				pt_insn_get_offset(decoder, &offset);
				replay_follow(offset, event.type == ptev_enabled);
				if (event.type == ptev_overflow)
					skip_stretch();
			}
			if (status < 0)
				break;
			memset(&insn, 0, sizeof(insn));
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			pt_insn_get_offset(decoder, &offset);
			replay_follow(offset, false);
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

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s FOLDER STREAM\n", argv[0]);
		return 2;
	}
	unsigned number = (unsigned)strtoul(argv[2], NULL, 10);
	recording = recording_open(argv[1], number);
	truth_open(argv[1], number);
	struct pt_config config;
	struct pt_insn_decoder *decoder = replay_configure(&recording, &config) ? pt_insn_alloc_decoder(&config) : NULL;
	if (!decoder || replay_image(&recording, pt_insn_get_image(decoder)) < 0) {
		fprintf(stderr, "%s: libipt refuses the configuration\n", argv[0]);
		return 2;
	}
	bool same = walk(decoder);
	printf("equal %" PRIu64 " gaps %" PRIu64 " errors %" PRIu64 " missing %" PRIu64 " beyond %" PRIu64 "\n", equal, gaps,
	       errors, missing, beyond);
	return !same;
}
