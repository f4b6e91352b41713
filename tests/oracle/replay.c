#include "replay.h"

static const struct recording *replayed;
static uint32_t epoch;
static size_t next_mark;

static int read_image(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	size_t got = 0;

	(void)asid, (void)context;
	while (got < size && image_byte(epoch, ip + got, &buffer[got]))
		got++;
	return got ? (int)got : -pte_nomap;
}

bool replay_configure(const struct recording *recording, struct pt_config *config)
{
	const struct vpt_control *control = recording->control;

	pt_config_init(config);
	config->cpu = (struct pt_cpu){pcv_intel, (uint16_t)control->family, (uint8_t)control->model, (uint8_t)control->stepping};
	config->begin = (uint8_t *)recording->packets;
	config->end = config->begin + recording->stream->written_bytes;
	config->mtc_freq = (uint8_t)control->mtc_freq;
	config->nom_freq = (uint8_t)control->nominal_ratio;
	config->cpuid_0x15_eax = control->tsc_ctc_den;
	config->cpuid_0x15_ebx = control->tsc_ctc_num;
	return pt_cpu_errata(&config->errata, &config->cpu) >= 0;
}

int replay_image(const struct recording *recording, struct pt_image *image)
{
	replayed = recording;
	return pt_image_set_callback(image, read_image, NULL);
}

void replay_follow(uint64_t offset, bool enabled)
{
	for (; next_mark < replayed->mark_count && replayed->marks[next_mark].offset < offset; next_mark++) {
		bool tip = (replayed->packets[replayed->marks[next_mark].offset] & 0x1f) == 0x0d;

		if (!tip && !enabled)
			break;
		epoch = replayed->marks[next_mark].epoch;
	}
}
