/* The control page, and the recorder's own thread: it begins a session, ends it on time and never asks the controller. */
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 500000
#define BUS_HZ 100000000ull

struct recorder recorder;
static char parent_folder[200];

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct vpt_anchor anchor(void)
{
    return (struct vpt_anchor){__rdtsc(), now_ns(CLOCK_REALTIME), now_ns(CLOCK_MONOTONIC)};
}

static void pause_ns(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

static uint64_t measure_tsc_hz(void)
{
    struct vpt_anchor a = anchor();
    pause_ns(5000000);
    struct vpt_anchor b = anchor();
    return (b.tsc - a.tsc) * 1000000000 / (b.monotonic_ns - a.monotonic_ns);
}

static uint64_t process_start(void)
{
    char text[1024] = "";
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    char *at = got > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

bool control_open(const char *folder, uint32_t parent)
{
    char path[320];
    snprintf(parent_folder, sizeof parent_folder, "%s", folder);
    snprintf(recorder.folder, sizeof recorder.folder, "%s/%d", parent_folder, getpid());
    mkdir(folder, 0700);
    if (mkdir(recorder.folder, 0700) && errno != EEXIST)
        return false;
    snprintf(path, sizeof path, "%s/control", recorder.folder);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    int failed = posix_fallocate(file, 0, sizeof(struct vpt_control));
    void *page = failed ? MAP_FAILED : mmap(NULL, sizeof(struct vpt_control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        return false;
    if (!recorder.tsc_hz)
        recorder.tsc_hz = measure_tsc_hz();
    struct vpt_control *c = recorder.control = page;
    c->version = VPT_VERSION;
    c->pid = (uint32_t)getpid();
    c->process_start = process_start();
    c->parent_pid = parent;
    c->family = 6, c->model = 94, c->stepping = 3;
    c->nominal_ratio = (uint32_t)((recorder.tsc_hz + BUS_HZ / 2) / BUS_HZ);
    c->tsc_ctc_num = c->nominal_ratio * 4, c->tsc_ctc_den = 1; /* a crystal of about 25 MHz */
    atomic_thread_fence(memory_order_release);
    c->magic = VPT_MAGIC;
    return true;
}

static void configure(void)
{
    const struct vpt_control *c = recorder.control;
    uint32_t psb = c->psb_freq > 15 ? 15 : c->psb_freq;
    recorder.config = (struct pt_config){
        .tsc = c->flags & VPT_TSC, .mtc = c->flags & VPT_MTC, .cyc = c->flags & VPT_CYC,
        .long_tnt = c->flags & VPT_LONG_TNT, .psb_bytes = 2048u << psb, .mtc_shift = c->mtc_freq,
        .ctc_num = c->tsc_ctc_num, .ctc_den = c->tsc_ctc_den, .bus_ratio = (uint8_t)c->nominal_ratio,
    };
}

static void begin(void)
{
    struct vpt_control *c = recorder.control;
    c->streams = c->unbuffered_threads = c->unexplained = 0;
    c->sideband_bytes = c->unbuffered_blocks = 0;
    c->end = (struct vpt_anchor){0, 0, 0};
    configure();
    if (!sideband_open(c->error, sizeof c->error) || !streams_create(c->error, sizeof c->error)) {
        sideband_close();
        __atomic_store_n(&c->state, VPT_REFUSED, __ATOMIC_SEQ_CST);
        return;
    }
    image_reset();
    if (c->flags & VPT_TRUTH)
        truth_create();
    c->begin = anchor();
    recorder.session++;
    atomic_store(&recorder.active, true);
    atomic_store(&recorder.wanted, true);
    __atomic_store_n(&c->state, VPT_ACTIVE, __ATOMIC_SEQ_CST);
}

/* A thread writes only after it has seen `active`; one outside user mode sees it before it writes again. */
static void wait_for_threads(void)
{
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        struct thread *t = recorder.threads[i];
        while (t && t->session == recorder.session && !atomic_load(&t->outside))
            pause_ns(100000);
        if (t)
            truth_close(t);
    }
}

static void finish(uint32_t reason)
{
    struct vpt_control *c = recorder.control;
    c->stop_reason = reason;
    atomic_store(&recorder.active, false);
    atomic_store(&recorder.wanted, false);
    wait_for_threads();
    c->end = anchor();
    sideband_close();
    __atomic_store_n(&c->state, VPT_FINISHED, __ATOMIC_SEQ_CST);
}

static void *watch(void *unused)
{
    struct vpt_control *c = recorder.control;
    uint32_t before = VPT_IDLE;
    for (;; pause_ns(POLL_NS)) {
        uint32_t state = __atomic_load_n(&c->state, __ATOMIC_SEQ_CST);
        if (state == VPT_IDLE && before == VPT_FINISHED)
            streams_remove();
        if (state == VPT_ARMED) {
            streams_remove();
            begin();
        } else if (state == VPT_ACTIVE && c->stop_request) {
            finish(VPT_STOP_REQUEST);
        } else if (state == VPT_ACTIVE && now_ns(CLOCK_MONOTONIC) - c->begin.monotonic_ns >= c->period_ns) {
            finish(VPT_STOP_PERIOD);
        }
        before = c->state;
    }
    return unused;
}

void control_start_thread(void)
{
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!pthread_create(&thread, NULL, watch, NULL))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* The child is a recordable process of its own, dormant. */
void control_after_fork(void)
{
    uint32_t parent = recorder.control->pid;
    char folder[200];
    atomic_store(&recorder.active, false);
    atomic_store(&recorder.wanted, false);
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        if (recorder.threads[i])
            recorder.threads[i]->recording = false, recorder.threads[i]->truth = NULL;
    snprintf(folder, sizeof folder, "%s", parent_folder);
    if (control_open(folder, parent))
        control_start_thread();
}

void control_exit(void)
{
    struct vpt_control *c = recorder.control;
    if (c->pid != (uint32_t)getpid())
        return;
    if (c->state == VPT_ACTIVE) {
        atomic_store(&recorder.active, false);
        for (unsigned i = 0; i < MAX_VCPUS; i++)
            if (recorder.threads[i])
                streams_settle(recorder.threads[i]);
        c->end = anchor();
        c->state = VPT_FINISHED;
    } else if (c->state != VPT_FINISHED && c->state != VPT_CLAIMED && c->state != VPT_ARMED) {
        char path[320];
        streams_remove();
        for (unsigned i = 0; i < 3; i++) {
            static const char *const names[] = {"control", "sideband.bin", "truth-blocks.bin"};
            snprintf(path, sizeof path, "%s/%s", recorder.folder, names[i]);
            unlink(path);
        }
        rmdir(recorder.folder);
    }
}
