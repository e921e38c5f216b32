/* Control of a simulated CANN runtime from the program that runs on it.
 *
 * The functions are exported by the simulator's libascendcl.so and by no real
 * runtime: look them up (dlsym, ctypes) and take their absence for "not the
 * simulator". All are thread-safe. Sizes are bytes, times are nanoseconds of
 * virtual time. Unless noted, a function returns 0, or an ACL error code and
 * changes nothing; `device` is an index, and no current device is needed.
 *
 * `call` is the name of a kind of driver call: the C function, for example
 * "aclrtMalloc", "aclrtMapMem", or "launch" for operators and kernels. The
 * kinds, with their default costs, are listed in docs/run-without-npu.md.
 */
#ifndef CANN_SIM_H
#define CANN_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cannSimStats {
  uint64_t capacity;         /* memory of the device */
  uint64_t used;             /* in use by this process, in whole pages */
  uint64_t peakUsed;         /* most ever in use, since the last reset of statistics */
  uint64_t externalUsed;     /* held by other processes (cannSimSetExternalUsage) */
  uint64_t tasks;            /* tasks put on streams */
  uint64_t driverCalls;      /* all driver calls */
  uint64_t driverNs;         /* their cost, waiting not counted */
  uint64_t hostWaitNs;       /* time the host waited for the device */
  uint64_t hazards;          /* number of hazards */
  uint64_t unfreedPlain;     /* allocations of aclrtMalloc not freed */
  uint64_t unfreedPhysical;  /* physical handles not freed */
  uint64_t takenBackByReset; /* not freed when the program reset the device */
} cannSimStats;

/* Cheap enough to be asked for after every call. */
typedef struct cannSimMemory {
  uint64_t used;     /* as in cannSimStats */
  uint64_t peakUsed; /* as in cannSimStats */
  uint64_t calls;    /* that obtain, return, map or unmap memory */
} cannSimMemory;

typedef struct cannSimCallStat {
  uint64_t count;
  uint64_t failed;
  uint64_t ns;
  uint64_t waitNs;
} cannSimCallStat;

typedef struct cannSimHazard {
  char kind[48]; /* what happened, a short phrase */
  char name[64]; /* the operator or call concerned */
  uint64_t addr;
  uint64_t len;
  uint64_t timeNs;
} cannSimHazard;

/* What happened. */
int cannSimGetStats(int32_t device, cannSimStats* stats);
int cannSimGetMemory(int32_t device, cannSimMemory* memory);
int cannSimGetCallStat(int32_t device, const char* call, cannSimCallStat* stat);
/* Hazards in the order they happened; the first 1000 of a device are kept. */
int cannSimGetHazard(int32_t device, uint64_t index, cannSimHazard* hazard);
/* Sets counts, times and hazards of a device to zero, and its peak to what is in use. */
int cannSimResetStats(int32_t device);
/* Writes the report (JSON, as CANN_SIM_REPORT gives at exit) to a file now. */
int cannSimWriteReport(const char* path);

/* Time. */
uint64_t cannSimNow(void);
/* The host is busy for a while; tasks that end meanwhile complete. */
int cannSimAdvance(uint64_t nanoseconds);

/* Work. */
/* A kernel on a stream (null: the current device's default one) that touches `len` bytes from
 * `addr` on; none when `len` is 0. Costs what a launch costs, and is counted as one. */
int cannSimLaunch(void* stream, uint64_t addr, uint64_t len);

/* Knobs; they take effect with the next call. */
/* The capacity may be set below what is in use: nothing more can be allocated then, but from the
 * pages of 1 GiB put aside. */
int cannSimSetCapacity(int32_t device, uint64_t bytes);
int cannSimSetExternalUsage(int32_t device, uint64_t bytes);
/* Pages put aside, those in use among them; no more than fit into the capacity
 * and, beyond those put aside before, into what is free. */
int cannSimSetHuge1gPages(int32_t device, uint64_t pages);
/* Cost of a kind of call: once, and for each 2 MiB. */
int cannSimSetCallCost(const char* call, uint64_t base, uint64_t perPage);
int cannSimSetKernelTime(uint64_t nanoseconds);
/* Whether one physical handle may be mapped at two addresses. */
int cannSimSetAlias(int allow);
/* Workspace that operators ask for. */
int cannSimSetWorkspace(uint64_t bytes);
/* A fault plan as in CANN_SIM_FAULTS; an empty one ends all planned faults. */
int cannSimSetFaults(const char* plan);

/* Trouble. */
/* Memory of a device is found to be bad: reported by aclrtGetMemUceInfo, and until it is repaired
 * calls on the device fail with 507053, the same as after cannSimBreakDevice. */
int cannSimInjectUce(int32_t device, uint64_t addr, uint64_t len);
/* The device fails: allocations of memory and physical handles, new streams, work put on streams,
 * replays, queries of streams and waits for streams, events and the device return `code` until it
 * is reset; 0 heals it. Synchronous copies and fills, event queries and mappings go on. */
int cannSimBreakDevice(int32_t device, int32_t code);

#ifdef __cplusplus
}
#endif

#endif /* CANN_SIM_H */
