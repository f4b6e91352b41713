/* What QEMU calls. Dormant there is no callback in any block; `qemu_plugin_reset` puts them in and takes them out. */
#include "qemu_plugin.h"
#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static _Atomic bool instrumented;
static _Atomic bool resetting;
static __thread struct { uint64_t address, size; } pending_map;

void block_entry(unsigned vcpu, void *block);
void block_executed(unsigned vcpu, void *block, const uint64_t *registers);

/* Generated code calls this directly, with TCG's AREG0, the guest's CPU state, in %rbp. */
__asm__(".text\n.type block_entry,@function\nblock_entry:\n\tmov %rbp,%rdx\n\tjmp block_executed\n");

__attribute__((used, visibility("hidden"))) void block_executed(unsigned vcpu, void *block, const uint64_t *registers)
{
    struct thread *thread = atomic_load_explicit(&recorder.threads[vcpu], memory_order_relaxed);
    if (unlikely(atomic_load_explicit(&thread->outside, memory_order_relaxed))) {
        if (!recorder.active)
            return;
        atomic_store(&thread->outside, false);
    }
    flow_block(thread, block, registers);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb), size = 0;
    uint8_t bytes[16 * 512];
    uint64_t addresses[512];
    (void)id;
    if (!count || count > 512)
        return;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        addresses[i] = qemu_plugin_insn_vaddr(insn);
        if (!i)
            recorder.guest_base = (uint64_t)(uintptr_t)qemu_plugin_insn_haddr(insn) - addresses[0];
        memcpy(bytes + size, qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        size += qemu_plugin_insn_size(insn);
    }
    struct block *block = calloc(1, sizeof *block);
    block->start = addresses[0];
    block->last = addresses[count - 1];
    block->end = block->start + size;
    size_t last = block->last - block->start;
    block->class = (uint8_t)insn_classify(bytes + last, size - last, block->last, &block->target);
    block->epoch = image_translated(block->start, bytes, size);
    if (recorder.control->flags & VPT_TRUTH)
        block->id = truth_define(addresses, (uint32_t)count, block->class == INSN_REPEAT);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, block_entry, QEMU_PLUGIN_CB_R_REGS, block);
}

static void vcpu_init(qemu_plugin_id_t id, unsigned vcpu)
{
    (void)id;
    if (vcpu >= MAX_VCPUS)
        abort();
    if (!recorder.threads[vcpu])
        recorder.threads[vcpu] = calloc(1, sizeof(struct thread));
    recorder.threads[vcpu]->session = 0;
    recorder.threads[vcpu]->outside = true;
}

static void outside(struct thread *thread)
{
    flow_leave(thread);
    atomic_store(&thread->outside, true);
}

static void vcpu_exit(qemu_plugin_id_t id, unsigned vcpu)
{
    (void)id;
    if (recorder.active)
        streams_settle(recorder.threads[vcpu]);
    outside(recorder.threads[vcpu]);
}

static void register_callbacks(qemu_plugin_id_t id);

static void was_reset(qemu_plugin_id_t id)
{
    instrumented = recorder.wanted;
    register_callbacks(id);
    resetting = false;
}

static void syscall_begins(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                           uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (instrumented) {
        struct thread *thread = recorder.threads[vcpu];
        if (!recorder.active)
            streams_settle(thread);
        outside(thread);
        pending_map.size = number == SYS_mmap || number == SYS_mremap ? (number == SYS_mmap ? b : c) : 0;
        if (number == SYS_munmap || number == SYS_mremap)
            image_unmapped(a, b);
    }
    if (unlikely(instrumented != recorder.wanted) && !atomic_exchange(&resetting, true))
        qemu_plugin_reset(id, was_reset);
}

static void syscall_returns(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id, (void)vcpu, (void)number;
    if (instrumented && pending_map.size && (uint64_t)result < -4096ull)
        image_unmapped((uint64_t)result, pending_map.size);
    pending_map.size = 0;
}

static void exits(qemu_plugin_id_t id, void *unused)
{
    (void)id, (void)unused;
    control_exit();
}

static void register_callbacks(qemu_plugin_id_t id)
{
    qemu_plugin_register_vcpu_init_cb(id, vcpu_init);
    qemu_plugin_register_vcpu_exit_cb(id, vcpu_exit);
    qemu_plugin_register_vcpu_syscall_cb(id, syscall_begins);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall_returns);
    qemu_plugin_register_atexit_cb(id, exits, NULL);
    if (instrumented)
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *folder = NULL;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "dir=", 4))
            folder = argv[i] + 4;
        else {
            fprintf(stderr, "permille-vpt: unknown option %s; known: dir=FOLDER\n", argv[i]);
            return -1;
        }
    }
    if (!folder || info->system_emulation || strcmp(info->target_name, "x86_64")) {
        fprintf(stderr, "permille-vpt: needs qemu-x86_64 and dir=FOLDER\n");
        return -1;
    }
    if (!control_open(folder, 0)) {
        fprintf(stderr, "permille-vpt: cannot create the control page below %s\n", folder);
        return -1;
    }
    register_callbacks(id);
    pthread_atfork(NULL, NULL, control_after_fork);
    control_start_thread();
    return 0;
}
