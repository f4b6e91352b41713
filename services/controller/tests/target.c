/* A program to record: three threads that compute, call and sleep, one more for each byte read; ends with its input. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) int work(unsigned seed)
{
    int numbers[256];

    for (int i = 0; i < 256; i++)
        numbers[i] = (int)((seed = seed * 1103515245 + 12345) >> 16);
    qsort(numbers, 256, sizeof(numbers[0]), compare);
    return numbers[0];
}

static void *worker(void *argument)
{
    struct timespec pause = {0, 500000};

    for (unsigned seed = (unsigned)(size_t)argument;; seed++) {
        work(seed);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    char byte;

    for (size_t i = 0; i < 3; i++)
        pthread_create(&thread, NULL, worker, (void *)i);
    while (read(0, &byte, 1) > 0)
        pthread_create(&thread, NULL, worker, (void *)(size_t)byte);
    return 0;
}
