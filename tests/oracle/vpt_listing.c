/* A stream that vpt recorded as libipt sees it: vpt_listing packets|instructions|blocks FOLDER STREAM (listing.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "listing.h"
#include "replay.h"

int main(int argc, char **argv)
{
	struct pt_image *image = pt_image_alloc("recording");
	struct recording recording;
	struct pt_config config;

	if (argc != 4) {
		fprintf(stderr, "usage: %s packets|instructions|blocks FOLDER STREAM\n", argv[0]);
		return 2;
	}
	recording = recording_open(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	if (!replay_configure(&recording, &config) || replay_image(&recording, image) < 0) {
		fprintf(stderr, "%s: libipt refuses the configuration\n", argv[0]);
		return 2;
	}
	if (!strcmp(argv[1], "packets"))
		list_packets(&config);
	else if (!strcmp(argv[1], "instructions"))
		list_instructions(&config, image, replay_follow);
	else if (!strcmp(argv[1], "blocks"))
		list_blocks(&config, image, replay_follow);
	else {
		fprintf(stderr, "%s: no layer %s\n", argv[0], argv[1]);
		return 2;
	}
	pt_image_free(image);
	return 0;
}
