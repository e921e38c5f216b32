"""Calls that name a device or a pool ask that one."""


def test_a_pool_sleeps_alone(environment):
    code = (
        "import torch, npualloc\n"
        "outside = torch.empty(100 << 20, dtype=torch.uint8, device='npu')\n"
        "pool = torch.npu.MemPool()\n"
        "with torch.npu.use_mem_pool(pool):\n"
        "    inside = torch.empty(40 << 20, dtype=torch.uint8, device='npu')\n"
        "free = [torch.npu.mem_get_info()[0]]\n"
        "changed = []\n"
        "for call in (npualloc.sleep, npualloc.sleep, npualloc.wake_up, npualloc.wake_up):\n"
        "    changed.append(call(pool=pool))\n"
        "    free.append(torch.npu.mem_get_info()[0])\n"
        "print([changed, [now - free[0] for now in free]])\n"
    )
    changed, grown = environment.answer(code)
    slept = changed[0]
    assert 40 << 20 <= slept < 100 << 20
    assert changed == [slept, 0, slept, 0]
    assert grown == [0, slept, slept, 0, 0]


def test_counters_are_those_of_the_device(environment):
    code = (
        "import torch, npualloc\n"
        "kept = [torch.empty(3 << 20, dtype=torch.uint8, device='npu:0')]\n"
        "kept += [torch.empty(size << 20, dtype=torch.uint8, device='npu:1') for size in (5, 50, 70)]\n"
        "names = ('allocated_bytes.all.current', 'npualloc.growth')\n"
        "print([[npualloc.stats(device)[name] for name in names] for device in (0, 1, 'npu:1', None)])\n"
    )
    zero, one, named, current = environment.answer(code, CANN_SIM_DEVICES="2", NPUALLOC_DEFAULT_ENGINE="fixed")
    assert zero == current == [(3 << 20) + 512, 1]
    assert one == named == [(125 << 20) + 3 * 512, 3]


def test_memory_is_checked_on_the_device(environment):
    code = (
        "import ctypes, torch, npualloc\n"
        "other = torch.empty(500, dtype=torch.uint8, device='npu:0')\n"
        "tensor = torch.empty(1000, dtype=torch.uint8, device='npu:1')\n"
        "found = [npualloc.check_memory(1) > 0]\n"
        "torch.npu.synchronize(1)\n"
        "size = ctypes.c_size_t(2)\n"
        "end = ctypes.c_void_p(tensor.data_ptr() + 1000)\n"
        "assert ctypes.CDLL('libascendcl.so').aclrtMemset(end, size, 1, size) == 0\n"
        "for device in (0, 1, 0):\n"
        "    try:\n"
        "        found.append(npualloc.check_memory(device) > 0)\n"
        "    except RuntimeError as error:\n"
        "        found.append(str(error))\n"
        "print(found)\n"
    )
    found = environment.answer(code, NPUALLOC_DEBUG="redzones", CANN_SIM_MODE="backed", CANN_SIM_DEVICES="2")
    assert found[:2] == [True, True] and found[3] is True
    assert "past the end of a block: 2 bytes differ, at offsets 1000 to 1001" in found[2]
