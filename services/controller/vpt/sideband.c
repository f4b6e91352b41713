/* The append-only file of what a decoder must know beside the packets. */
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;

bool sideband_open(char *error, size_t size)
{
    char path[320];
    snprintf(path, sizeof path, "%s/sideband.bin", recorder.folder);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0)
        snprintf(error, size, "sideband: %s", strerror(errno));
    return file >= 0;
}

void sideband_write(uint32_t kind, const void *head, size_t head_size, const void *tail, size_t tail_size)
{
    struct vpt_record record = {kind, (uint32_t)(head_size + tail_size), __rdtsc()};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)head, head_size}, {(void *)tail, tail_size}};
    pthread_mutex_lock(&lock);
    if (file >= 0 && writev(file, parts, 3) > 0)
        recorder.control->sideband_bytes += sizeof record + record.size;
    pthread_mutex_unlock(&lock);
}

void sideband_close(void)
{
    pthread_mutex_lock(&lock);
    if (file >= 0)
        close(file);
    file = -1;
    pthread_mutex_unlock(&lock);
}
