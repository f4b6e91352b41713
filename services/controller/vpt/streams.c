/* The session's streams: fixed pieces of shared memory, one a thread; a full one stops, as ToPA's STOP bit does. */
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vpt_stream *streams[VPT_MAX_STREAMS];
static uint32_t created;
static uint64_t sizes[VPT_MAX_STREAMS]; /* as mapped: the headers are writable by others */
static struct thread *revoked[MAX_VCPUS];
static unsigned revoked_count;

static struct vpt_stream *create(uint32_t index, uint64_t size)
{
    char path[320];
    snprintf(path, sizeof path, "%s/stream-%u.pt", recorder.folder, index);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    /* Allocated now, so that a full /dev/shm refuses the session instead of killing the process later. */
    int failed = posix_fallocate(file, 0, (off_t)(VPT_PAGE + size));
    void *memory = failed ? MAP_FAILED : mmap(NULL, VPT_PAGE + size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        int why = failed ? failed : errno;
        unlink(path);
        errno = why;
        return NULL;
    }
    struct vpt_stream *stream = memory;
    stream->magic = VPT_MAGIC;
    stream->version = VPT_VERSION;
    stream->index = index;
    stream->size_bytes = size;
    sizes[index] = VPT_PAGE + size;
    return stream;
}

bool streams_create(char *error, size_t size)
{
    struct vpt_control *c = recorder.control;
    for (uint32_t i = 0; i < c->planned_count && i < VPT_MAX_STREAMS; i++) {
        streams[i] = create(i, c->planned[i].size_bytes);
        if (!streams[i]) {
            snprintf(error, size, "stream of %llu bytes: %s", (unsigned long long)c->planned[i].size_bytes, strerror(errno));
            streams_remove();
            return false;
        }
        c->streams = created = i + 1;
    }
    return true;
}

/* Files of these numbers are there already, and nobody has them mapped. */
void streams_adopt(uint32_t count) { created = count < VPT_MAX_STREAMS ? count : VPT_MAX_STREAMS; }

void streams_remove(void)
{
    for (; created; created--) {
        uint32_t i = created - 1;
        char path[320];
        if (streams[i])
            munmap(streams[i], sizes[i]);
        streams[i] = NULL;
        snprintf(path, sizeof path, "%s/stream-%u.pt", recorder.folder, i);
        unlink(path);
        truth_remove(i);
    }
}

/* In a forked child: the streams are the parent's. */
void streams_forget(void)
{
    for (; created; created--)
        if (streams[created - 1])
            munmap(streams[created - 1], sizes[created - 1]), streams[created - 1] = NULL;
    revoked_count = 0;
}

/* Private memory in the place of the shared: the thread finds its stream where it was, and nobody else sees it. */
void streams_revoke(struct thread *t)
{
    if (t->stream)
        mmap(t->stream, sizes[t->stream_index], PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (revoked_count < MAX_VCPUS)
        revoked[revoked_count++] = t;
}

bool streams_revoked(void)
{
    while (revoked_count && !atomic_load(&revoked[revoked_count - 1]->busy))
        revoked_count--;
    return revoked_count;
}

void streams_lock(void) { pthread_mutex_lock(&lock); }
void streams_unlock(void) { pthread_mutex_unlock(&lock); }

/* As it is called now: threads name themselves after they began. */
static void read_name(struct vpt_stream *stream)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/comm", stream->tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, stream->name, 15);
    if (file >= 0)
        close(file);
    if (got > 0)
        stream->name[got - (stream->name[got - 1] == '\n')] = 0;
}

/* The piece planned for this thread, else one of the reserve. */
void streams_take(struct thread *t, uint32_t session)
{
    const struct vpt_control *c = recorder.control;
    uint32_t tid = t->tid = (uint32_t)syscall(SYS_gettid);
    t->session = session;
    t->previous = NULL;
    t->recording = false;
    t->stream = NULL;
    t->epoch = t->next_epoch = 0;
    t->frame = 0;
    returns_forget(&t->returns);
    pthread_mutex_lock(&lock);
    for (int pass = 0; pass < 2 && !t->stream; pass++)
        for (uint32_t i = 0; i < created && !t->stream; i++)
            if (!streams[i]->tid && c->planned[i].tid == (pass ? 0 : tid)) {
                streams[i]->tid = tid;
                t->stream = streams[i];
                t->stream_index = i;
            }
    if (!t->stream)
        recorder.control->unbuffered_threads++;
    pthread_mutex_unlock(&lock);
    if (!t->stream)
        return;
    read_name(t->stream);
    t->stream->first_tsc = __rdtsc();
    pt_begin(&t->writer, &recorder.config, (uint8_t *)t->stream + VPT_PAGE, sizes[t->stream_index] - VPT_PAGE);
    t->branches = c->flags & VPT_BRANCH;
    t->compress = !(c->flags & VPT_DISRETC);
    t->throttled = false;
    t->window_end = 0;
    t->recording = true;
    if (c->flags & VPT_TRUTH)
        truth_open(t);
}

void streams_settle(struct thread *t)
{
    if (t->stream)
        read_name(t->stream);
    if (!t->recording)
        return;
    t->recording = false;
    if (pt_room(&t->writer) && !t->throttled)
        pt_flush_tnt(&t->writer, __rdtsc());
    t->stream->written_bytes = (uint64_t)(t->writer.at - t->writer.begin);
    t->previous = NULL;
    truth_close(t);
}
