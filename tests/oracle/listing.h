/* What libipt makes of a stream, layer by layer, one line for each packet, instruction, block, event and error. */
#ifndef LISTING_H
#define LISTING_H

#include <stdbool.h>

#include <intel-pt.h>

/* Told where the decoder stands, and whether it just learned that tracing is enabled; may be NULL. */
typedef void follow_fn(uint64_t offset, bool enabled);

/*
 * "OFFSET NAME VALUE...", all numbers in hexadecimal. Addresses are as they stand in the packet, behind the number of
 * the compression. "OFFSET error TEXT" is followed by what comes from the next PSB on.
 */
void list_packets(const struct pt_config *config);

/*
 * Instructions: "ADDRESS", with " ?" within a transaction. Blocks: "FIRST LAST NUMBER", the same.
 * Events: "[NAME VALUE... @TIME]", without status updates; "-" for what is not known.
 * Errors: "error OFFSET ADDRESS TEXT". "sync OFFSET" where decoding begins or goes on: at a PSB.
 * "reached ADDRESS" before an error or the end: the instruction was given with that error rather than for itself, as
 * the packets do not say where it leads.
 */
void list_instructions(const struct pt_config *config, struct pt_image *image, follow_fn *follow);
void list_blocks(const struct pt_config *config, struct pt_image *image, follow_fn *follow);

#endif
