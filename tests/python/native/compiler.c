/* Preloaded: CANN compiles operators of the old path in Python, so that a queue's thread asks for the interpreter's
 * lock. The simulated runtime compiles nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

static void compile(void) {
  /* Time enough for the program to come to its wait. */
  usleep(100000);
  int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
  if (ensure != NULL && release != NULL) release(ensure());
}

static void* runtime(const char* name) {
  return dlsym(dlopen("libascendcl.so", RTLD_NOW), name);
}

typedef int32_t (*Execute)(void*, long, void*, void*, long, void*, void*, void*, long, long, void*, void*);

#define COMPILED(name)                                                                                              \
  int32_t name(void* a, long b, void* c, void* d, long e, void* f, void* g, void* h, long i, long j, void* k,       \
               void* l) {                                                                                           \
    compile();                                                                                                      \
    return ((Execute)runtime(#name))(a, b, c, d, e, f, g, h, i, j, k, l);                                           \
  }

COMPILED(aclopCompileAndExecute)
COMPILED(aclopCompileAndExecuteV2)
