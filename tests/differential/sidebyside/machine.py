"""Executes the operations of a script on the device of this process.

Runs inside a driver process, with whichever allocator is in place there, and
knows nothing of the other. A script is a list of operations, each a list of a
name and its arguments; `Machine` has a method of that name. Operations on
something that is not there (a freed block, an unknown pool) do nothing, so a
script stays valid whatever is dropped from it.

Kernels take so long on the device's virtual clock that work is pending until
somebody waits for it: what is pending does not depend on how many driver calls
an allocator makes.
"""

import ctypes
import gc
import itertools
import re

import torch
import torch_npu

from sidebyside.device import Device
from sidebyside.known import MAY_DIFFER, group

C = torch_npu._C
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CAPACITY = 64 * GIB
STREAMS = 4
DEVICES = 2


class NotClean(Exception):
    """A script left something behind that can't be removed."""


class Machine:
    """The device of this process, and what a script has made on it."""

    def __init__(self):
        torch.npu.init()
        torch.npu.set_device(0)
        self._sim = ctypes.CDLL("libascendcl.so")
        self._sim.cannSimSetCapacity.argtypes = [ctypes.c_int32, ctypes.c_uint64]
        self._sim.cannSimSetKernelTime.argtypes = [ctypes.c_uint64]
        self._sim.cannSimSetKernelTime(10**13)
        # From the runtime, so that a stream's number is the same everywhere.
        self._streams = [torch.npu.default_stream()]
        self._streams += [torch.npu.Stream() for _ in range(STREAMS - 1)]
        self._number = {}
        for number, stream in enumerate(self._streams):
            self._number[stream.npu_stream] = number
        self.warm_up()
        self.device = Device(self._sim)
        self._begin()

    def warm_up(self):
        """Makes torch_npu allocate what it keeps for ever."""
        for stream in self._streams:
            with torch.npu.stream(stream):
                torch.empty(8, dtype=torch.uint8, device="npu").fill_(1)
        torch.npu.synchronize()
        C._npu_emptyCache()
        self.do_reset_peak()
        self.do_reset_accumulated()

    def _begin(self):
        self._blocks = {}
        self._labels = {}
        self._pools = {}
        self._open = []
        self._graphs = {}
        self._states = {}
        self._capturing = None
        self._settings = False
        self._history = False

    def run(self, script, detailed, look_every):
        """Outcome of each operation, then the final state.

        Each outcome is a pair: what the operation gave, and the statistics
        after it, which only `detailed` keeps in full; nothing but after
        every `look_every`th operation.
        """
        self._settings = False
        outcomes = []
        for number, (name, *arguments) in enumerate(script, 1):
            try:
                given = getattr(self, "do_" + name)(*arguments)
            except Exception as error:
                given = self.failure(error)
            looks = number % look_every == 0
            outcomes.append([given, self._figures(detailed) if looks else {}])
        end = [self.do_snapshot(), self._figures(True)]
        return {"steps": outcomes, "end": end}

    def clean(self):
        """Removes all a script has made; the next one starts from nothing.

        Raises NotClean when something stays.
        """
        if self._capturing is not None:
            self.do_capture_end()
        while self._open:
            self.do_pool_end()
        for graph in list(self._graphs):
            self.do_graph_drop(graph)
        torch.npu.set_stream(self._streams[0])
        for block in list(self._blocks):
            self.do_free(block)
        self._graphs.clear()
        self._pools.clear()
        gc.collect(0)
        torch.npu.synchronize()
        if self._settings:
            raise NotClean("settings were changed")
        self._sim.cannSimSetCapacity(0, CAPACITY)
        C._npu_setMemoryFraction(1.0, 0)
        if self._history:
            C._npu_record_memory_history(None, None, "all", 1)
        C._npu_emptyCache()
        for device in range(DEVICES):
            C._npu_resetPeakMemoryStats(device)
            C._npu_resetAccumulatedMemoryStats(device)
        left = C._npu_memoryStats(0)
        for kind in ("allocation", "active", "segment", "reserved_bytes", "requested_bytes"):
            if left[kind]["all"]["current"]:
                raise NotClean(f"{kind} is {left[kind]['all']['current']}")
        if C._npu_memorySnapshot(None)["segments"]:
            raise NotClean("segments are left")
        self._begin()

    # What is seen.

    def _figures(self, detailed):
        stats = C._npu_memoryStats(0)
        flat = {"waits": self.device.waits(), "stream_waits": self.device.stream_waits()}
        for kind, value in stats.items():
            if not isinstance(value, dict):
                flat[kind] = value
            elif "all" in value:
                for pool, counts in value.items():
                    for name, count in counts.items():
                        flat[f"{kind}.{pool}.{name}"] = count
            else:
                for name, count in value.items():
                    flat[f"{kind}.{name}"] = count
        if detailed:
            return flat
        return [value for name, value in flat.items() if group(name) not in MAY_DIFFER]

    def failure(self, error):
        text = str(error)
        # Frames and host time are of the process.
        text = re.sub(r"\n(Exception raised from|\[ERROR\]).*", "", text, flags=re.S)
        text = re.sub(r"0x[0-9a-f]+|\b\d{13,}\b", "ADDRESS", text)
        return {"error": type(error).__name__, "text": text}

    def _label(self, address):
        return self._labels.get(address, -1)

    def _stream_number(self, raw):
        # Snapshots give a stream as a signed number.
        return self._number.get(raw, self._number.get(raw % (1 << 64), str(raw)))

    # Memory.

    def do_alloc(self, block, size, stream):
        """A tensor made on a stream."""
        if block in self._blocks:
            return None
        if stream is not None and self._capturing is None:
            torch.npu.set_stream(self._streams[stream])
        made = torch.empty(size, dtype=torch.uint8, device="npu")
        self._blocks[block] = made
        self._labels[made.data_ptr()] = block
        return made.data_ptr() % 512

    def do_raw(self, block, size, stream):
        """Memory by address, made for a stream."""
        if block in self._blocks:
            return None
        raw = self._streams[stream].npu_stream
        made = C._npu_npuCachingAllocator_raw_alloc(size, raw)
        self._blocks[block] = made
        self._labels[made] = block
        return made % 512

    def do_free(self, block):
        made = self._blocks.pop(block, None)
        if isinstance(made, int):
            C._npu_npuCachingAllocator_raw_delete(made)

    def do_bad_free(self, kind):
        """Deletes what is not the start of a live block."""
        wrong = {"unknown": 0xDEAD0000, "null": 0}.get(kind)
        if kind == "inside":
            made = [b for b in self._blocks.values() if isinstance(b, int) and b]
            wrong = made[0] + 256 if made else 0xDEAD0000
        C._npu_npuCachingAllocator_raw_delete(wrong)

    def do_use(self, block, stream):
        """Work on a stream that uses a block, with record_stream."""
        made = self._blocks.get(block)
        if made is None or isinstance(made, int) or not made.numel():
            return
        if self._capturing is not None:
            made[:1].fill_(1)
            made.record_stream(torch.npu.current_stream())
            return
        side = self._streams[stream]
        torch.npu.set_stream(side)
        made[:1].fill_(1)
        made.record_stream(side)

    def do_record(self, block, stream):
        """record_stream alone: no work is on the stream."""
        made = self._blocks.get(block)
        if made is not None and not isinstance(made, int):
            made.record_stream(self._streams[stream])

    def do_erase(self, block, stream):
        made = self._blocks.get(block)
        if made is not None and not isinstance(made, int):
            torch_npu.erase_stream(made, self._streams[stream])

    def do_sync(self, stream):
        if self._capturing is None:
            self._streams[stream].synchronize()

    def do_sync_all(self):
        if self._capturing is None:
            torch.npu.synchronize()

    def do_empty_cache(self):
        if self._capturing is None:
            C._npu_emptyCache()

    def do_empty_virt(self):
        if self._capturing is None:
            C._npu_emptyVirtAddrCache()

    def do_reset_peak(self):
        C._npu_resetPeakMemoryStats(0)

    def do_reset_accumulated(self):
        C._npu_resetAccumulatedMemoryStats(0)

    # Limits and settings.

    def do_fraction(self, fraction):
        C._npu_setMemoryFraction(fraction, 0)
        return C._npu_getMemoryFraction(0)

    def do_capacity(self, size):
        self._sim.cannSimSetCapacity(0, size)

    def do_setting(self, text):
        self._settings = True
        C._npu_npuCachingAllocator_set_allocator_settings(text)

    # Pools and captures.

    def do_pool_new(self, pool, use_on_oom, no_split):
        if pool not in self._pools:
            self._pools[pool] = torch_npu.npu.MemPool(None, use_on_oom, no_split)

    def do_pool_begin(self, pool):
        if pool in self._pools and not self._open and self._capturing is None:
            C._npu_beginAllocateCurrentThreadToPool(0, self._pools[pool].id)
            self._open.append(self._pools[pool])

    def do_pool_end(self):
        if self._open:
            pool = self._open.pop()
            C._npu_endAllocateToPool(0, pool.id)
            C._npu_releasePool(0, pool.id)

    def do_pool_drop(self, pool):
        if self._pools.get(pool) in self._open:
            return None
        made = self._pools.pop(pool, None)
        return made and made.use_count()

    def do_pool_snapshot(self, pool):
        made = self._pools.get(pool)
        return made and self._segments(made.snapshot())

    def do_pool_live(self, pool, blocks):
        """Whether exactly these blocks are what lives in a pool."""
        if pool not in self._pools:
            return None
        live = {self._blocks[b].data_ptr() for b in blocks if b in self._blocks
                and not isinstance(self._blocks[b], int)}
        return C._npu_checkPoolLiveAllocations(0, self._pools[pool].id, live)

    def do_pool_wrong(self, call):
        """A call that does not fit: the pool was never made, or its scope is not open."""
        getattr(C, call)(0, (77, 77))

    # Checkpoints of a pool, as graph trees make them.

    def _inside(self, pool):
        """Tensors that live in a pool."""
        segments = [(s["address"], s["address"] + s["total_size"])
                    for s in self._pools[pool].snapshot()]
        return {
            name: made for name, made in self._blocks.items()
            if not isinstance(made, int) and made.numel()
            and any(start <= made.data_ptr() < end for start, end in segments)
        }

    def do_checkpoint(self, pool):
        if pool in self._pools and pool not in self._states:
            state = C._npu_getCheckpointState(0, self._pools[pool].id)
            held = {name: made.data_ptr() for name, made in self._inside(pool).items()}
            self._states[pool] = (state, held)

    def do_restore(self, pool):
        """Back to the pool's checkpoint: what was made since is gone. Torch_npu's own
        bookkeeping of storages takes it once, and only while all of its tensors live."""
        if pool not in self._states or pool not in self._pools:
            return None
        state, held = self._states[pool]
        now = self._inside(pool)
        if not held or any(n not in now or now[n].data_ptr() != at for n, at in held.items()):
            return None
        self._states[pool] = (None, {})
        kept = [n for n, made in now.items() if held.get(n) == made.data_ptr()]
        storages = {name: made.untyped_storage()._cdata for name, made in now.items()}
        C._npu_setCheckpointPoolState(
            0, state, list(storages.values()), [storages[name] for name in kept]
        )
        for name in now.keys() - set(kept):
            # Its storage frees nothing any more.
            self._blocks.pop(name)
        return sorted(kept)

    def do_restore_foreign(self, pool):
        """A checkpoint where none belongs."""
        if pool in self._pools:
            C._npu_setCheckpointPoolState(0, None, [], [])

    # Another device.

    def do_alloc_on(self, block, size, device):
        if block in self._blocks or self._capturing is not None:
            return None
        made = torch.empty(size, dtype=torch.uint8, device=f"npu:{device}")
        self._blocks[block] = made
        self._labels[made.data_ptr()] = block
        return made.data_ptr() % 512

    def do_stats_on(self, device):
        stats = C._npu_memoryStats(device)
        names = ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes")
        return [stats[name]["all"][n] for name in names for n in ("current", "peak", "freed")]

    def do_capture_begin(self, graph, pool):
        if graph in self._graphs or self._capturing is not None or self._open:
            return
        torch.npu.synchronize()
        torch.npu.set_stream(self._streams[1])
        made = torch.npu.NPUGraph()
        of = self._graphs.get(pool)
        made.capture_begin(pool=of and of[1], capture_error_mode="relaxed")
        self._graphs[graph] = [made, None]
        self._capturing = graph

    def do_capture_end(self):
        """Ends the capture under way; its pool can then be shared."""
        if self._capturing is not None:
            graph, self._capturing = self._capturing, None
            torch.npu.set_stream(self._streams[1])
            self._graphs[graph][0].capture_end()
            self._graphs[graph][1] = self._graphs[graph][0].pool()

    def do_replay(self, graph):
        if graph in self._graphs and self._capturing is None:
            self._graphs[graph][0].replay()

    def do_graph_drop(self, graph):
        if graph in self._graphs and graph != self._capturing:
            self._graphs.pop(graph)[0].reset()

    # Reports.

    def do_history(self, enabled, entries):
        """Recording on, or off with None."""
        self._history = enabled
        C._npu_record_memory_history(enabled, None, "python", entries)

    def do_summary(self, abbreviated):
        text = torch.npu.memory_summary(0, abbreviated)
        # As the statistic of that name.
        return "\n".join(l for l in text.splitlines() if "Oversize allocations" not in l)

    def do_mem_info(self):
        return list(torch.npu.mem_get_info(0))

    def do_snapshot(self):
        """Segments and trace entries with addresses replaced by what they mean."""
        taken = C._npu_memorySnapshot(None)
        traces = taken["device_traces"]
        entries = [self._entry(e) for e in traces[0]] if traces else []
        # In which order one call returns several segments, or finds the uses
        # of several blocks completed, is not compared.
        sorted_ = []
        for action, run in itertools.groupby(entries, lambda e: e[0]):
            run = list(run)
            sorted_ += sorted(run) if action in ("segment_free", "free_completed") else run
        # A ring of one entry keeps whatever came last.
        entries = sorted_ if self._history != "state" else len(sorted_)
        return {"segments": self._segments(taken["segments"]), "trace": entries}

    def _segments(self, segments):
        found = []
        for segment in segments:
            start = segment["address"]
            blocks = [
                [b["address"] - start, b["size"],
                 # Of a free block stock keeps what was last requested.
                 0 if b["state"] == "inactive" else b["requested_size"], b["state"],
                 self._label(b["address"]) if b["state"] == "active_allocated" else None]
                for b in segment["blocks"]
            ]
            pool = segment["segment_pool_id"]
            found.append([
                segment["segment_type"], self._stream_number(segment["stream"]),
                tuple(pool) != (0, 0), segment["is_expandable"], segment["total_size"],
                segment["allocated_size"], segment["active_size"],
                segment["requested_size"], blocks, sorted(segment),
            ])
        return found

    def _entry(self, entry):
        stream = self._stream_number(entry["stream"])
        # An OOM entry's address is the free memory of the device.
        return [entry["action"], entry["size"], stream, sorted(entry)]
