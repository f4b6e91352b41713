/*
 * From dormant to recording and back. QEMU calls the plugin from those blocks only that it translated while the plugin
 * asked for it; `qemu_plugin_reset` drops all translations, between two instructions of every thread, and lets the
 * plugin ask anew. It must be called by a guest's thread that goes on executing: one that returns from a system call, or
 * executes an instrumented block. For a thread that does neither, QEMU has a list of work per virtual CPU, which it
 * executes when the CPU leaves its generated code, and it makes the CPU leave.
 */
#include "qemu_plugin.h"
#include "recorder.h"

/* At the start all blocks are instrumented until the first one showed that this QEMU is as we know it. */
#define PROBE 0xffffffffu

typedef union {
    void *pointer;
    uint64_t value;
} work_argument;

/* Not part of the plugin interface: QEMU's binary exports them all the same, but another build need not. */
extern void *qemu_get_cpu(int) __attribute__((weak));
extern void async_run_on_cpu(void *cpu, void (*work)(void *cpu, work_argument), work_argument) __attribute__((weak));
extern void cpu_list_lock(void) __attribute__((weak));
extern void cpu_list_unlock(void) __attribute__((weak));

static uint64_t plugin;
static switching_register register_callbacks;
static _Atomic bool switching;
static _Atomic enum { UNKNOWN, SOUND, UNSOUND } soundness;

/* All guest threads are between two instructions or in system calls. */
static void was_reset(qemu_plugin_id_t id)
{
    uint32_t session = atomic_load(&recorder.session);
    blocks_free();
    atomic_store(&recorder.instrumented, session);
    register_callbacks(id, session != 0);
    atomic_store(&switching, false);
}

void switching_install(uint64_t id, switching_register callbacks)
{
    plugin = id;
    register_callbacks = callbacks;
    recorder.instrumented = PROBE;
    register_callbacks(id, true);
}

void switching_follow(void)
{
    if (likely(atomic_load(&recorder.session) == atomic_load(&recorder.instrumented)))
        return;
    if (!atomic_exchange(&switching, true))
        qemu_plugin_reset(plugin, was_reset);
}

static void follow(void *cpu, work_argument unused)
{
    (void)cpu, (void)unused;
    switching_follow();
}

void switching_push(void)
{
    if (!qemu_get_cpu || !async_run_on_cpu || !cpu_list_lock || !cpu_list_unlock)
        return;
    cpu_list_lock();
    for (int i = 0; i < MAX_VCPUS; i++) {
        struct thread *thread = recorder.threads[i];
        void *cpu = thread && thread->alive ? qemu_get_cpu(i) : NULL;
        if (cpu)
            async_run_on_cpu(cpu, follow, (work_argument){.value = 0});
    }
    cpu_list_unlock();
}

bool switching_known(void) { return soundness != UNKNOWN; }

const char *switching_unsound(void)
{
    return soundness == UNSOUND ? "this QEMU keeps the guest's registers elsewhere than QEMU 7.2 does" : NULL;
}

void switching_probe(const struct block *block, const uint64_t *registers)
{
    if (likely(recorder.instrumented != PROBE || soundness != UNKNOWN))
        return;
    soundness = registers[RIP] == block->start ? SOUND : UNSOUND;
}
