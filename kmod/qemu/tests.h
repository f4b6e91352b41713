/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TESTS_H
#define TESTS_H

/* A number of the kernel's command line */
long parameter(const char *name, long otherwise);

/* Nothing that the kernel complains about may be in its log. */
void check_kernel_log(void);

void test_sessions(void);
void test_refusals(void);
void test_switch_records(void);
void test_processes(void);
void test_dead_targets(void);
void test_buffers(void);
void test_lifecycle(void);
void test_operations(void);
void test_fuzz(void);
void test_loading(void);
void test_traced(void);
void test_perf(void);
void test_mesh(void);
void test_selftest(void);
void test_memory(void);
void test_neighbours(void);
void test_kexec(void);

#endif
