/* Preloaded: the device's log, as CANN writes it where it is to be seen at once. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

void aclAppLog(int level, const char* function, const char* file, uint32_t line, const char* format, ...) {
  (void)function, (void)file, (void)line;
  char text[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  fprintf(stderr, "device log %d: %s\n", level, text);
}
