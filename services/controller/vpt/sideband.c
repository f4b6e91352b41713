/*
 * The append-only file of what a decoder must know beside the packets. It is mapped, and no descriptor stays open: the
 * program's own closing and counting of descriptors must not meet ours. The file is sparse, and zeros follow its end.
 */
#include "lock_in_time.h"
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES (1ull << 30)
#define STEP_BYTES (64ull << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *memory; /* MOST_BYTES, of which `allocated` may be touched */
static uint64_t allocated;

void sideband_lock(void) { pthread_mutex_lock(&lock); }
void sideband_unlock(void) { pthread_mutex_unlock(&lock); }

static int open_file(int flags)
{
    char path[320];
    snprintf(path, sizeof path, "%s/sideband.bin", recorder.folder);
    return open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* 0 or an errno. */
static int allocate(int file)
{
    int failed = allocated < MOST_BYTES ? posix_fallocate(file, (off_t)allocated, STEP_BYTES) : EFBIG;
    if (!failed)
        allocated += STEP_BYTES;
    return failed;
}

static int create(void)
{
    int file = open_file(O_RDWR | O_CREAT | O_TRUNC), failed = 0;
    if (file < 0)
        return errno;
    allocated = 0;
    void *mapped = MAP_FAILED;
    if (ftruncate(file, MOST_BYTES))
        failed = errno;
    if (!failed)
        failed = allocate(file);
    if (!failed && (mapped = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0)) == MAP_FAILED)
        failed = errno;
    if (!failed)
        memory = mapped;
    close(file);
    return failed;
}

bool sideband_open(char *error, size_t size)
{
    if (!lock_in_time(&lock)) {
        snprintf(error, size, "a thread of the program is stopped inside the recorder");
        return false;
    }
    int failed = create();
    pthread_mutex_unlock(&lock);
    if (failed)
        snprintf(error, size, "sideband of %llu bytes: %s", STEP_BYTES, strerror(failed));
    return !failed;
}

static bool room(uint64_t bytes)
{
    while (allocated < bytes) {
        int file = open_file(O_RDWR);
        int failed = file < 0 ? errno : allocate(file);
        if (file >= 0)
            close(file);
        if (failed)
            return false;
    }
    return true;
}

bool sideband_write(uint32_t kind, const void *head, size_t head_size, const void *tail, size_t tail_size)
{
    struct vpt_record record = {kind, (uint32_t)(head_size + tail_size), __rdtsc()};
    pthread_mutex_lock(&lock);
    uint64_t from = recorder.control->sideband_bytes, to = from + sizeof record + record.size;
    bool fits = memory && room(to);
    if (fits) {
        uint8_t *at = memory + from;
        memcpy(at + sizeof record, head, head_size);
        memcpy(at + sizeof record + head_size, tail, tail_size);
        memcpy(at, &record, sizeof record);
        __atomic_store_n(&recorder.control->sideband_bytes, to, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

void sideband_close(void)
{
    if (!memory)
        return;
    if (lock_in_time(&lock)) {
        munmap(memory, MOST_BYTES);
        memory = NULL;
        pthread_mutex_unlock(&lock);
        return;
    }
    /* A thread is stopped while it writes: what it will write goes nowhere. */
    mmap(memory, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
