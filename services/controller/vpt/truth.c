/* Truth mode: what really ran, for tests. */
#include "lock_in_time.h"
#include "recorder.h"

#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *blocks;
static uint32_t next_id;

/* A thread may still define a block of the session before: it did not come to a processor since. */
bool truth_create(void)
{
    char path[320];
    snprintf(path, sizeof path, "%s/truth-blocks.bin", recorder.folder);
    if (!lock_in_time(&lock))
        return false;
    if (blocks)
        fclose(blocks);
    blocks = fopen(path, "we");
    next_id = 0;
    pthread_mutex_unlock(&lock);
    return true;
}

uint32_t truth_define(const uint64_t *addresses, uint32_t count, bool repeats)
{
    uint32_t head[2] = {0, count | (repeats ? VPT_TRUTH_REPEATS : 0)};
    pthread_mutex_lock(&lock);
    if (blocks) {
        head[0] = next_id++;
        fwrite(head, sizeof head, 1, blocks);
        fwrite(addresses, sizeof *addresses, count, blocks);
        fflush(blocks);
    }
    pthread_mutex_unlock(&lock);
    return head[0];
}

/* The files of a stream: what ran, and the stack pointers. */
static const char *name_of(char path[320], const char *what, uint32_t stream)
{
    snprintf(path, 320, "%s/%s-%u.bin", recorder.folder, what, stream);
    return path;
}

void truth_open(struct thread *t)
{
    char path[320];
    t->truth = fopen(name_of(path, "truth", t->stream->index), "we");
    t->stacks = fopen(name_of(path, "truth-stack", t->stream->index), "we");
}

void truth_remove(uint32_t stream)
{
    char path[320];
    unlink(name_of(path, "truth", stream));
    unlink(name_of(path, "truth-stack", stream));
}

void truth_block(struct thread *t, uint32_t id, uint64_t stack)
{
    fwrite(&id, sizeof id, 1, t->truth);
    if (t->stacks)
        fwrite(&stack, sizeof stack, 1, t->stacks);
}

void truth_trim(struct thread *t, uint64_t address)
{
    uint32_t entry = VPT_TRUTH_TRIM;
    if (!t->truth)
        return;
    fwrite(&entry, sizeof entry, 1, t->truth);
    fwrite(&address, sizeof address, 1, t->truth);
}

void truth_gap(struct thread *t)
{
    uint32_t entry = VPT_TRUTH_GAP;
    if (t->truth)
        fwrite(&entry, sizeof entry, 1, t->truth);
}

void truth_close(struct thread *t)
{
    if (t->truth)
        fclose(t->truth);
    if (t->stacks)
        fclose(t->stacks);
    t->truth = t->stacks = NULL;
}

/* In a forked child: the files, and what is still in their buffers, are the parent's, and so is who has the lock. */
void truth_forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    blocks = NULL;
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        if (recorder.threads[i])
            recorder.threads[i]->truth = recorder.threads[i]->stacks = NULL;
}
