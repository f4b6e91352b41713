/* SPDX-License-Identifier: GPL-2.0 */
/* Results as "ok N - what" and "not ok N - what". */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>

bool check_that(bool holds, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* All checks since the last call are one result. */
void result(const char *what);
int plan(void);

#define check(holds, ...) check_that(holds, __FILE__, __LINE__, __VA_ARGS__)

#endif
