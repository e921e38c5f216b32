/* Stands for CANN's libms_tools_ext.so: writes down what memory tools are told. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct range {
  uint32_t device;
  const void* ptr;
  uint64_t size;
};

struct heap {
  int usage;
  int type;
  const struct range* range;
};

struct to_register {
  void* heap;
  int type;
  size_t count;
  const struct range* ranges;
  void** handles;
};

struct reference {
  int type;
  const void* ptr;
};

struct to_unregister {
  size_t count;
  const struct reference* references;
};

/* kind (0 heap, 1 block, 2 block gone), device, address, bytes */
static int64_t events[1024][4];
static int event_count;
static char caching_domain;
static char other_domain;

static void note(const void* domain, int64_t kind, int64_t device, const void* ptr, int64_t size) {
  if (domain != &caching_domain || event_count == 1024) return;
  int64_t* event = events[event_count++];
  event[0] = kind;
  event[1] = device;
  event[2] = (int64_t)(intptr_t)ptr;
  event[3] = size;
}

void* mstxDomainCreateA(const char* name) {
  return strcmp(name, "ptaCaching") == 0 ? &caching_domain : &other_domain;
}

void* mstxMemHeapRegister(void* domain, const struct heap* heap) {
  note(domain, 0, heap->range->device, heap->range->ptr, (int64_t)heap->range->size);
  return NULL;
}

void mstxMemRegionsRegister(void* domain, const struct to_register* regions) {
  for (size_t i = 0; i < regions->count; ++i) {
    const struct range* range = &regions->ranges[i];
    note(domain, 1, range->device, range->ptr, (int64_t)range->size);
  }
}

void mstxMemRegionsUnregister(void* domain, const struct to_unregister* regions) {
  for (size_t i = 0; i < regions->count; ++i) {
    note(domain, 2, -1, regions->references[i].ptr, 0);
  }
}

int test_event_count(void) { return event_count; }
int64_t test_event(int index, int field) { return events[index][field]; }
