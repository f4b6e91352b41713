/* What QEMU calls. */
#include "qemu_plugin.h"
#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MAX_INSNS 512 /* of a block: TCG_MAX_INSNS */
#define MAX_INSN_BYTES 16

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static __thread uint64_t action_number, action; /* of a sigaction that has begun */

void block_entry(unsigned vcpu, void *block);
void block_executed(unsigned vcpu, void *block, const uint64_t *registers);

/* Generated code calls this directly, with TCG's AREG0, the guest's CPU state, in %rbp. */
__asm__(".text\n.type block_entry,@function\nblock_entry:\n\tmov %rbp,%rdx\n\tjmp block_executed\n");

__attribute__((used, visibility("hidden"))) void block_executed(unsigned vcpu, void *block, const uint64_t *registers)
{
    struct thread *thread = vcpu < MAX_VCPUS ? atomic_load_explicit(&recorder.threads[vcpu], memory_order_relaxed) : NULL;
    if (unlikely(!thread)) {
        recorder.control->unbuffered_blocks++;
        return;
    }
    uint32_t session = thread_enter(thread);
    if (likely(session))
        flow_block(thread, session, block, registers);
    thread_exit(thread);
    if (unlikely(!session)) {
        switching_probe(block, registers);
        switching_follow();
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb), size = 0;
    uint8_t bytes[MAX_INSN_BYTES * MAX_INSNS];
    uint64_t addresses[MAX_INSNS];
    (void)id;
    if (!count || count > MAX_INSNS)
        return;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        addresses[i] = qemu_plugin_insn_vaddr(insn);
        if (!i)
            guest_saw(addresses[0], qemu_plugin_insn_haddr(insn));
        memcpy(bytes + size, qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        size += qemu_plugin_insn_size(insn);
    }
    struct block *block = blocks_new();
    block->start = addresses[0];
    block->last = addresses[count - 1];
    block->end = block->start + size;
    block->count = (uint16_t)count;
    size_t last = block->last - block->start;
    block->class = (uint8_t)insn_classify(bytes + last, size - last, block->last, &block->target);
    if (recorder.session) {
        block->hash = image_hash(bytes, size);
        block->epoch = image_translated(block->start, bytes, size);
        if (recorder.control->flags & VPT_TRUTH)
            block->id = truth_define(addresses, (uint32_t)count, block->class == INSN_REPEAT);
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, block_entry, QEMU_PLUGIN_CB_R_REGS, block);
}

static void vcpu_init(qemu_plugin_id_t id, unsigned vcpu)
{
    (void)id;
    if (vcpu >= MAX_VCPUS)
        return;
    if (!recorder.threads[vcpu])
        recorder.threads[vcpu] = calloc(1, sizeof(struct thread));
    if (!recorder.threads[vcpu])
        return;
    recorder.threads[vcpu]->session = 0;
    recorder.threads[vcpu]->alive = true;
}

static void vcpu_exit(qemu_plugin_id_t id, unsigned vcpu)
{
    (void)id;
    struct thread *thread = vcpu < MAX_VCPUS ? recorder.threads[vcpu] : NULL;
    if (!thread)
        return;
    uint32_t session = thread_enter(thread);
    if (session && session == thread->session)
        streams_settle(thread);
    thread_exit(thread);
    thread->alive = false;
}

static void syscall_begins(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                           uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)d, (void)e, (void)f, (void)g, (void)h;
    struct thread *thread = vcpu < MAX_VCPUS ? recorder.threads[vcpu] : NULL;
    if (thread) {
        uint32_t session = thread_enter(thread);
        if (session && session == thread->session)
            flow_leave(thread);
        thread_exit(thread);
    }
    address_space_call(number, (const uint64_t[]){a, b, c});
    if (unlikely(number == SYS_rt_sigaction))
        action_number = a, action = b;
    if (unlikely(number == SYS_execve || number == SYS_execveat))
        exec_begins(number, a, b, c);
}

static void syscall_returns(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result)
{
    (void)id, (void)vcpu;
    address_space_return(number, result);
    if (unlikely(number == SYS_rt_sigaction && !result))
        signals_action(action_number, action);
    if (unlikely(number == SYS_execve || number == SYS_execveat))
        exec_failed();
    switching_follow();
}

static void exits(qemu_plugin_id_t id, void *unused)
{
    (void)id, (void)unused;
    control_exit();
}

static void register_callbacks(uint64_t id, bool blocks)
{
    qemu_plugin_register_vcpu_init_cb(id, vcpu_init);
    qemu_plugin_register_vcpu_exit_cb(id, vcpu_exit);
    qemu_plugin_register_vcpu_syscall_cb(id, syscall_begins);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall_returns);
    qemu_plugin_register_atexit_cb(id, exits, NULL);
    if (blocks)
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *folder = NULL;
    bool follow = false;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "dir=", 4)) {
            folder = argv[i] + 4;
        } else if (!strcmp(argv[i], "follow=on") || !strcmp(argv[i], "follow=off")) {
            follow = argv[i][8] == 'n';
        } else if (!strncmp(argv[i], "name=", 5)) {
            prctl(PR_SET_NAME, argv[i] + 5);
        } else {
            fprintf(stderr, "permille-vpt: unknown option %s; known: dir=FOLDER, follow=on|off, name=NAME\n", argv[i]);
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
    exec_configure(follow, folder);
    switching_install(id, register_callbacks);
    pthread_atfork(control_before_fork, control_after_fork_in_parent, control_after_fork_in_child);
    control_start_thread();
    return 0;
}
