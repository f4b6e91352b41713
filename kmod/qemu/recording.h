/* SPDX-License-Identifier: GPL-2.0 */
/* A session as a program of the interface sees it. */
#ifndef RECORDING_H
#define RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <permille.h>

#define CORES 2
#define KTHREADD 2	/* a process that lives and has no user code */

#define MOST_PROCESSES 16

struct recording {
	int fd;
	struct permille_setup setup;
	struct permille_core_plan plans[CORES];
	uint32_t pids[MOST_PROCESSES];
	const uint8_t *trace[CORES];
	struct permille_ring *rings[CORES];
};

/*
 * A plan that is right: `count` cores from `first` on, 1 MiB and 64 Ki records each, and the
 * longest period.
 */
void propose(struct recording *r, pid_t pid, unsigned int first, unsigned int count);
/*
 * 0 or an errno; the refusal is in r->setup, and what the buffers got in r->plans. The file stays
 * open until close_recording.
 */
int set_up(struct recording *r);
/* The same, of a process that is no target yet; version 0: the right one. */
int add_process(struct recording *r, struct permille_process *process);
int start(struct recording *r);
void map(struct recording *r);
/* Both of these must work. */
void record(struct recording *r);
void stop(struct recording *r);
void wait_end(struct recording *r);
void close_recording(struct recording *r);
/*
 * No session is left. The model refuses a core whose TraceEn is still set, so that a new one proves
 * that tracing is off.
 */
void check_all_off(pid_t target);

struct permille_core_status core_status(const struct recording *r, unsigned int index);
struct permille_session_status session_status(const struct recording *r);
const struct permille_switch *switch_at(const struct recording *r, unsigned int index,
					uint64_t number);
struct permille_info module_info(void);

int load_module_from(const char *path, const char *parameters);
int load_module(const char *parameters);
int unload_module(void);
/*
 * Attaches the module's probes, which the first session does: this one is of a kernel thread, and
 * so of nothing.
 */
void attach_probes(void);
/* All three, while nothing runs that the probes are attached to */
void reload_module(const char *parameters);
long read_number(const char *path);
bool write_text(const char *path, const char *text);

#endif
