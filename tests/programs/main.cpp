/* main LIBRARY [PART...]: repeats every part, or those named, in threads until it is killed. */
#include "program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

const char *library_path;

namespace {

struct Part {
    const char *name;
    void (*once)();
};

constexpr Part parts[] = {
    {"exceptions", throw_and_catch}, {"jumps", jump_out},           {"faults", catch_faults},
    {"signals", meet_signals},       {"library", use_library},      {"generated", generate_code},
    {"strings", repeat_strings},     {"processes", make_processes},
};

void repeat(const Part &part)
{
    pthread_setname_np(pthread_self(), part.name);
    for (;;)
        part.once();
}

bool wanted(const Part &part, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (!std::strcmp(argv[i], part.name))
            return true;
    return argc == 2;
}

} // namespace

unsigned compute(unsigned seed, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        seed = seed * 1664525 + 1013904223;
        if (seed >> 31)
            seed ^= i;
        else if (seed & 0x10000)
            seed += rounds;
    }
    return seed;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s LIBRARY [PART...]\n", argv[0]);
        return 2;
    }
    library_path = argv[1];
    std::vector<std::thread> threads;
    for (const Part &part : parts)
        if (wanted(part, argc, argv))
            threads.emplace_back(repeat, std::cref(part));
    for (std::thread &thread : threads)
        thread.join();
}
