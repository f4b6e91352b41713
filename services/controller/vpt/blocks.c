/* Translated blocks live until the instrumentation changes: then no generated code knows them any more. */
#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>

#define CHUNK_BLOCKS 1023

struct chunk {
    struct chunk *next;
    size_t used;
    struct block blocks[CHUNK_BLOCKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *chunks;
static _Atomic uint32_t translated;

struct block *blocks_new(void)
{
    pthread_mutex_lock(&lock);
    if (!chunks || chunks->used == CHUNK_BLOCKS) {
        struct chunk *chunk = calloc(1, sizeof *chunk);
        if (!chunk)
            abort();
        chunk->next = chunks;
        chunks = chunk;
    }
    struct block *block = &chunks->blocks[chunks->used++];
    translated++;
    pthread_mutex_unlock(&lock);
    return block;
}

uint32_t blocks_translated(void) { return translated; }

void blocks_free(void)
{
    pthread_mutex_lock(&lock);
    for (struct chunk *chunk; (chunk = chunks) != NULL; free(chunk))
        chunks = chunk->next;
    pthread_mutex_unlock(&lock);
}
