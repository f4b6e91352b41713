// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include <stdio.h>

#include "tap.h"

static int results, failed, failures;

bool check_that(bool holds, const char *file, int line, const char *format, ...)
{
	va_list arguments;

	if (holds)
		return true;
	if (failures++ < 20) {
		printf("# %s:%d: ", file, line);
		va_start(arguments, format);
		vprintf(format, arguments);
		va_end(arguments);
		printf("\n");
	}
	return false;
}

void note(const char *format, ...)
{
	va_list arguments;

	printf("# ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

void result(const char *what)
{
	printf("%sok %d - %s\n", failures ? "not " : "", ++results, what);
	failed += failures != 0;
	failures = 0;
}

int plan(void)
{
	printf("1..%d\n", results);
	return failed;
}
