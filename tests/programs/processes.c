/* Children that compute and end, children that become another program, and one that never comes to be. */
#include "program.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void compute_in_a_child(void)
{
    pid_t child = fork();
    if (!child) {
        struct timespec now, begin;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do {
            compute(1, 1000);
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - begin.tv_sec) * 1000000000l + now.tv_nsec - begin.tv_nsec < 20000000);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void become_another(const char *path)
{
    char *arguments[] = {(char *)path, NULL};
    pid_t child = fork();
    if (!child) {
        execv(path, arguments);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

static void spawn(void)
{
    char *arguments[] = {"true", NULL};
    pid_t child;
    if (!posix_spawnp(&child, "true", NULL, NULL, arguments, environ))
        waitpid(child, NULL, 0);
}

void make_processes(void)
{
    compute_in_a_child();
    become_another("/bin/true");
    become_another("/nonexistent");
    spawn();
    nanosleep(&(struct timespec){0, 30000000}, NULL);
}
