// Puts the page together.

const header = JSON.parse(document.getElementById('header').textContent);
const byId = (id) => document.getElementById(id);

function markerFinder(markers) {
  const starts = Uint32Array.from(markers, ([at]) => at);
  return (at) => {
    const index = upperBound(starts, at) - 1;
    return index < 0 ? '' : markers[index][1];
  };
}

function showFacts(series) {
  const { outcome } = header;
  byId('title').textContent = header.source;
  const conf = header.conf ? `PYTORCH_NPU_ALLOC_CONF=${header.conf}` : 'default settings';
  byId('subtitle').textContent = [header.workload, conf].filter(Boolean).join(' · ');
  byId('torn').hidden = !header.torn;
  const live = Math.max(0, series.live[argmax(series.live, header.events)]);
  const reserved = series.reserved[argmax(series.reserved, header.events)];
  byId('tiles').replaceChildren(
    tile(bytes(live), 'most bytes alive at once'),
    tile(bytes(reserved), `most reserved (${(reserved / (live || 1)).toFixed(3)} × live)`),
    tile(bytes(header.capacity), 'the device has'),
    tile(number(outcome.memory_calls), `driver calls, ${(outcome.memory_ns / 1e6).toFixed(1)} ms`),
    tile(`${(outcome.wait_ns / 1e6).toFixed(1)} ms`, `waiting in ${number(outcome.device_syncs)} device synchronisations and for events`),
    tile(number(header.events), `${header.events < header.events_in_trace ? `of ${number(header.events_in_trace)} ` : ''}events, ${number(header.blocks)} allocations, ${header.streams} stream${header.streams === 1 ? '' : 's'}${header.pools.length ? `, ${number(header.pools.length)} private pool${header.pools.length === 1 ? '' : 's'}` : ''}`),
  );
  byId('footer').textContent = `npualloc ${header.version} · replayed on a simulated device: counts and bytes are exact, times follow the simulator's cost model`;
}

function showFailure(tables, choose) {
  const oom = header.out_of_memory;
  if (!oom) return;
  const { lists, sum } = causesAt(tables, memoryAt(tables, oom.at), oom.at);
  const own = lists.filter((list) => list.stream === oom.stream && list.pool === oom.pool && list.large === oom.requested > 2 ** 20);
  const where = `stream ${oom.stream}${oom.pool ? ` from the private ${poolName(header, oom.pool)}` : ''}`;
  const largest = Math.max(0, ...own.map((list) => list.largest));
  const free = own.reduce((total, list) => total + list.free, 0);
  const rest = Math.max(0, header.capacity - sum.reserved);
  const box = byId('alert');
  box.hidden = false;
  const jump = element('button', { class: 'danger' }, 'Go there');
  jump.addEventListener('click', () => choose(oom.at));
  box.replaceChildren(
    element('p', {}, element('strong', {}, 'Memory ran out '), `at event ${number(oom.at)}: ${bytes(oom.requested)} asked for on ${where}. `, jump),
    element('p', {}, `That stream has ${bytes(free)} free in its pool, the longest run ${bytes(largest)}; ${bytes(sum.reserved - sum.live)} of the ${bytes(sum.reserved)} reserved are not live; the device has ${bytes(rest)} left.`),
    element('p', { class: 'quiet message' }, oom.message),
  );
}

function tips(timeline, map, series, markerOf) {
  const tip = byId('tip');
  const show = (event, text) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - width - 8)}px`;
    tip.style.top = `${event.clientY + height + 24 > window.innerHeight ? event.clientY - height - 10 : event.clientY + 16}px`;
  };
  byId('timeline').addEventListener('pointermove', (event) => {
    const at = timeline.atOf(event.offsetX);
    const marker = markerOf(at);
    show(event, [`event ${number(at)}${marker ? ` · ${marker}` : ''}`, `reserved ${bytes(series.reserved[at])}`,
      `active ${bytes(series.active[at])}`, `live ${bytes(Math.max(0, series.live[at]))}`].join('\n'));
  });
  byId('map').addEventListener('pointermove', (event) => show(event, map.describe(event.offsetX, event.offsetY)));
  for (const id of ['timeline', 'map']) byId(id).addEventListener('pointerleave', (event) => show(event, ''));
}

function describer(tables, markerOf, moment) {
  const { blocks, ranges } = tables;
  return ({ range, block, addr }) => {
    const kind = ranges.page[range] > 0 ? `virtual segment, pages of ${bytes(ranges.page[range])}` : 'segment';
    const pool = ranges.pool[range] ? ` in ${poolName(header, ranges.pool[range])}` : '';
    const place = `${kind} of stream ${ranges.stream[range]}${pool}: ${bytes(ranges.size[range])} at 0x${ranges.addr[range].toString(16)}`;
    if (block === null) return `free, at 0x${Math.floor(addr).toString(16)}\n${place}`;
    const marker = markerOf(blocks.allocated[block]);
    const lines = [
      `${bytes(blocks.size[block] - blocks.slack[block])} at 0x${blocks.addr[block].toString(16)}`,
      blocks.freed[block] <= moment() ? 'freed, waiting for another stream' : 'live',
      `allocated at event ${number(blocks.allocated[block])}${marker ? ` (${marker})` : ''}, ${number(moment() - blocks.allocated[block])} events ago`,
      place,
    ];
    if (blocks.stack) lines.push(...header.stacks[blocks.stack[block]].split('\n').slice(0, 6));
    return lines.join('\n');
  };
}

function start(tables) {
  const series = buildSeries(header, tables);
  const markerOf = markerFinder(header.markers);
  let moment = 0;
  const map = createMap(byId('map'), tables, describer(tables, markerOf, () => moment));
  const timeline = createTimeline(byId('timeline'), header, series, choose);

  function choose(at) {
    moment = at;
    const memory = memoryAt(tables, at);
    const { sum, lists } = causesAt(tables, memory, at);
    const marker = markerOf(at);
    for (const shown of document.querySelectorAll('.moment')) {
      shown.textContent = `after event ${number(at)}${marker ? ` · ${marker}` : ''}`;
    }
    timeline.show(at);
    showCauses(sum);
    showLists(header, lists);
    map.show(memory, at);
    const used = memory.reduce((total, { blocks }) => total + blocks.length, 0);
    byId('map-hint').textContent = `${number(memory.length)} ${memory.length === 1 ? 'range' : 'ranges'} of memory, by address, wrapped like text; ${number(used)} blocks in use. Point at one.`;
    showHolders(header, holdersAt(header, tables, memory, at, markerOf), sum.live);
    document.body.dataset.moment = String(at);
  }

  function showMapLegend(mode) {
    const waiting = [css('--waiting'), 'waiting for another stream'];
    const free = [css('--free'), 'free'];
    if (mode === 'age') {
      const names = ['just allocated', '', '', '', '', 'from the beginning'];
      legend('map-legend', [...ageColours().map((colour, step) => [colour, names[step]]), waiting, free]);
    } else if (mode === 'pool') {
      const pools = Array.from({ length: Math.min(8, header.pools.length + 1) }, (_, pool) =>
        [streamColour(pool), pool === 7 && header.pools.length > 7 ? 'further pools' : poolName(header, pool)]);
      legend('map-legend', [...pools, waiting, [css('--free'), 'free, marked in the colour of its pool']]);
    } else {
      const streams = Array.from({ length: Math.min(8, header.streams) }, (_, stream) =>
        [streamColour(stream), stream === 7 && header.streams > 8 ? 'further streams' : `stream ${stream}`]);
      legend('map-legend', [...streams, waiting, free]);
    }
  }

  function legends() {
    legend('timeline-legend', [[css('--live'), 'live: asked for by the program'],
      [css('--waiting'), 'active: with rounding, and freed memory that another stream may still use'],
      [css('--partial'), 'reserved: held by the allocator'], [css('--quiet'), 'ticks: markers']]);
    showMapLegend(document.body.dataset.colour);
  }

  const last = header.events - 1;
  const jumps = [['most live', argmax(series.live, header.events)], ['most reserved', argmax(series.reserved, header.events)], ['end', last]];
  if (header.out_of_memory) jumps.unshift(['out of memory', header.out_of_memory.at]);
  byId('jumps').replaceChildren(...jumps.map(([text, at], index) => {
    const button = element('button', header.out_of_memory && index === 0 ? { class: 'danger' } : {}, text);
    button.addEventListener('click', () => choose(at));
    return button;
  }));
  const names = ['age', 'stream', ...(header.pools.length ? ['pool'] : [])];
  // The address may say which: page.html#pool.
  const asked = window.location.hash.slice(1);
  const first = names.includes(asked) ? asked : 'age';
  const modes = names.map((mode) => {
    const button = element('button', { role: 'radio', 'aria-checked': String(mode === first) }, mode);
    button.addEventListener('click', () => {
      for (const other of modes) other.setAttribute('aria-checked', String(other === button));
      document.body.dataset.colour = mode;
      showMapLegend(mode);
      map.colourBy(mode);
    });
    return button;
  });
  byId('colours').replaceChildren('colour by ', ...modes);
  document.body.dataset.colour = first;
  map.colourBy(first);

  showFacts(series);
  showFailure(tables, choose);
  legends();
  tips(timeline, map, series, markerOf);
  choose(jumps[0][1]);
  const redraw = () => {
    legends();
    timeline.draw();
    map.draw();
  };
  window.addEventListener('resize', () => requestAnimationFrame(redraw));
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

(async () => {
  const begin = performance.now();
  try {
    const data = byId('data');
    const tables = await readTables(header, data.textContent.trim());
    data.remove();
    start(tables);
    document.body.dataset.milliseconds = String(Math.round(performance.now() - begin));
    document.body.dataset.ready = 'yes';
  } catch (error) {
    byId('alert').hidden = false;
    byId('alert').textContent = `This page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`;
    document.body.dataset.ready = 'failed';
  }
})();
