// The part of mstx's C interface that torch_npu's headers name. A torch_npu source tree has the
// whole header at this place; the wheel leaves it out.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mstxDomainRegistration_st;
using mstxDomainHandle_t = mstxDomainRegistration_st*;
struct mstxMemHeap_st;
using mstxMemHeapHandle_t = mstxMemHeap_st*;
struct mstxMemVirtualRangeDesc_t;
struct mstxMemHeapDesc_t;
struct mstxMemRegionsRegisterBatch_t;
struct mstxMemRegionsUnregisterBatch_t;
