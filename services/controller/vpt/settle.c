/* The end of a session for its threads, whatever each of them does at the moment. */
#include "clock.h"
#include "lock_in_time.h"
#include "recorder.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUSY_PATIENCE_NS 1000000000 /* for threads that others keep from the processor */

/* After this every thread that enters a callback sees what was stored before. */
static void barrier(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
        pause_ns(1000000);
}

/* By a debugger, and not only without a processor. */
static bool is_stopped(const struct thread *t)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%u/stat", t->tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    char *name_end = got > 0 ? strrchr(text, ')') : NULL;
    return !name_end || strchr("Tt", name_end[2]);
}

/* Whether the thread came out of the recorder. */
static bool comes_out(struct thread *t, uint64_t since)
{
    while (atomic_load(&t->busy)) {
        uint64_t waited = now_ns(CLOCK_MONOTONIC) - since;
        if (waited >= BUSY_PATIENCE_NS || (waited >= PATIENCE_NS && is_stopped(t)))
            return false;
        pause_ns(50000);
    }
    return true;
}

void settle_threads(uint32_t session)
{
    uint64_t since = now_ns(CLOCK_MONOTONIC);
    barrier();
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        struct thread *t = recorder.threads[i];
        if (!t)
            continue;
        bool out = comes_out(t, since);
        if (t->session != session)
            continue;
        if (out)
            streams_settle(t);
        else
            streams_revoke(t), recorder.control->revoked_threads++;
    }
}
