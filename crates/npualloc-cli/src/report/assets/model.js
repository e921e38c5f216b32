// What memory looked like: totals at every event, and everything at one of them.

const UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1024, 'KiB']];

function bytes(value) {
  for (const [unit, name] of UNITS) {
    if (value >= unit) return `${(value / unit).toFixed(value >= 100 * unit ? 1 : 2)} ${name}`;
  }
  return `${value} B`;
}

// A pool by its number: 0 is the default one.
function poolName(header, pool) {
  if (pool === 0) return 'default pool';
  const [first, second] = header.pools[pool - 1];
  return `pool (${first}, ${second})`;
}

const number = (value) => value.toLocaleString('en-US');

// Sums that change at events, as totals after each event.
function runningTotal(length, changes) {
  const total = new Float64Array(length + 1);
  changes((at, amount) => { if (at <= length) total[at] += amount; });
  for (let i = 1; i <= length; i++) total[i] += total[i - 1];
  return total;
}

// Least and most of each eight neighbours, of each eight of those, and so on.
function pyramid(values) {
  const levels = [{ min: values, max: values }];
  while (levels[levels.length - 1].max.length > 256) {
    const below = levels[levels.length - 1];
    const length = Math.ceil(below.max.length / 8);
    const min = new Float64Array(length);
    const max = new Float64Array(length);
    for (let i = 0; i < length; i++) {
      let least = Infinity;
      let most = -Infinity;
      const end = Math.min(below.max.length, 8 * i + 8);
      for (let j = 8 * i; j < end; j++) {
        if (below.min[j] < least) least = below.min[j];
        if (below.max[j] > most) most = below.max[j];
      }
      min[i] = least;
      max[i] = most;
    }
    levels.push({ min, max });
  }
  return levels;
}

// The least and the most in [from, to), from the coarsest level that is fine enough.
function extremes(levels, from, to) {
  let level = 0;
  let scale = 1;
  while (level + 1 < levels.length && to - from >= 16 * scale) {
    level++;
    scale *= 8;
  }
  const { min, max } = levels[level];
  let least = Infinity;
  let most = -Infinity;
  const end = Math.min(max.length, Math.max(Math.ceil(to / scale), Math.floor(from / scale) + 1));
  for (let i = Math.floor(from / scale); i < end; i++) {
    if (min[i] < least) least = min[i];
    if (max[i] > most) most = max[i];
  }
  return [least, most];
}

function buildSeries(header, { blocks, ranges }) {
  const last = header.events - 1;
  const live = runningTotal(last, (add) => {
    for (let i = 0; i < blocks.count; i++) {
      const size = blocks.size[i] - blocks.slack[i];
      add(blocks.allocated[i], size);
      add(blocks.freed[i], -size);
    }
  });
  const active = runningTotal(last, (add) => {
    for (let i = 0; i < blocks.count; i++) {
      add(blocks.allocated[i], blocks.size[i]);
      add(blocks.reusable[i], -blocks.size[i]);
    }
  });
  const reserved = runningTotal(last, (add) => {
    for (let i = 0; i < ranges.count; i++) {
      add(ranges.begins[i], ranges.size[i]);
      add(ranges.ends[i], -ranges.size[i]);
    }
  });
  return { live, active, reserved };
}

function argmax(values, end) {
  let best = 0;
  for (let i = 1; i < end; i++) if (values[i] > values[best]) best = i;
  return best;
}

// The first position whose value is greater than `limit`.
function upperBound(sorted, limit) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

// Every range after event `at`, with the blocks in use in it, both by address.
function memoryAt({ blocks, ranges }, at) {
  const held = [];
  for (let i = 0; i < ranges.count && ranges.begins[i] <= at; i++) {
    if (ranges.ends[i] > at) held.push(i);
  }
  held.sort((a, b) => ranges.addr[a] - ranges.addr[b]);
  const used = [];
  const end = upperBound(blocks.allocated, at);
  for (let i = 0; i < end; i++) if (blocks.reusable[i] > at) used.push(i);
  used.sort((a, b) => blocks.addr[a] - blocks.addr[b]);
  let next = 0;
  return held.map((range) => {
    const stop = ranges.addr[range] + ranges.size[range];
    const inside = [];
    while (next < used.length && blocks.addr[used[next]] < stop) inside.push(used[next++]);
    return { range, blocks: inside };
  });
}

// Reserved memory by cause; and the same for each (pool, stream, small or large).
function causesAt(tables, memory, at) {
  const { blocks, ranges } = tables;
  const sum = { live: 0, slack: 0, waiting: 0, idle: 0, pages: 0, partial: 0, reserved: 0 };
  const lists = new Map();
  for (const { range, blocks: inside } of memory) {
    const start = ranges.addr[range];
    const size = ranges.size[range];
    const page = ranges.page[range];
    const key = (ranges.pool[range] * 65536 + ranges.stream[range]) * 2 + ranges.large[range];
    let list = lists.get(key);
    if (!list) {
      list = { stream: ranges.stream[range], pool: ranges.pool[range], large: ranges.large[range] === 1, reserved: 0, live: 0, waiting: 0, free: 0,
        idle: 0, partial: 0, runs: 0, largest: 0, segments: 0 };
      lists.set(key, list);
    }
    list.segments++;
    list.reserved += size;
    sum.reserved += size;
    const hole = (from, to) => {
      const free = to - from;
      if (free <= 0) return;
      list.free += free;
      list.runs++;
      list.largest = Math.max(list.largest, free);
      if (inside.length === 0) {
        sum.idle += free;
        list.idle += free;
        return;
      }
      // Whole pages of a virtual segment can move; a fixed segment in use keeps all of its holes.
      let whole = 0;
      if (page > 0) {
        whole = Math.max(0, Math.floor((to - start) / page) - Math.ceil((from - start) / page)) * page;
      }
      sum.pages += whole;
      sum.partial += free - whole;
      list.partial += free - whole;
    };
    let from = start;
    for (const i of inside) {
      hole(from, blocks.addr[i]);
      from = blocks.addr[i] + blocks.size[i];
      if (blocks.freed[i] > at) {
        sum.live += blocks.size[i] - blocks.slack[i];
        sum.slack += blocks.slack[i];
        list.live += blocks.size[i];
      } else {
        sum.waiting += blocks.size[i];
        list.waiting += blocks.size[i];
      }
    }
    hole(from, start + size);
  }
  const sorted = [...lists.values()].sort((a, b) => b.reserved - a.reserved);
  return { sum, lists: sorted };
}

// Live blocks in groups: by stack, or where none are known by the marker they were allocated under and
// their size.
function holdersAt(header, { blocks }, memory, at, markerOf) {
  const groups = new Map();
  for (const { blocks: inside } of memory) {
    for (const i of inside) {
      if (blocks.freed[i] <= at) continue;
      const requested = blocks.size[i] - blocks.slack[i];
      const marker = blocks.stack ? '' : markerOf(blocks.allocated[i]);
      const key = blocks.stack ? blocks.stack[i] : `${marker}\n${requested}`;
      let group = groups.get(key);
      if (!group) {
        const stack = blocks.stack ? header.stacks[blocks.stack[i]] : null;
        group = { stack, marker, each: requested, count: 0, bytes: 0, first: NEVER };
        groups.set(key, group);
      }
      group.count++;
      group.bytes += requested;
      group.first = Math.min(group.first, blocks.allocated[i]);
    }
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
}
