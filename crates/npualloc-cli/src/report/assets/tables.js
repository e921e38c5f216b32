// Tables and legends. Texts from the trace enter the page as text only.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'style') made.style.cssText = value;
    else if (key === 'class') made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const swatch = (colour) => element('i', { style: `background:${colour}` });

function legend(id, entries) {
  const shown = entries.map(([colour, text]) => element('span', {}, swatch(colour), text));
  document.getElementById(id).replaceChildren(...shown);
}

const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : '–');

function tile(value, text) {
  return element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, text));
}

function fillTable(id, head, rows) {
  const cell = (name) => (value, index) => {
    const content = Array.isArray(value) ? value : [value];
    return element(name, index === 0 || head[index].text ? { class: 'text' } : {}, ...content);
  };
  const titles = head.map((column, index) => element('th', index === 0 || column.text ? { class: 'text' } : {}, column.title));
  const body = rows.map((row) => element('tr', {}, ...row.map(cell('td'))));
  document.getElementById(id).replaceChildren(
    element('thead', {}, element('tr', {}, ...titles)),
    element('tbody', {}, ...body),
  );
}

const CAUSES = [
  ['live', '--live', 'live', 'what the program asked for and has not given back'],
  ['slack', '--rounding', 'rounding', 'padding and rounding of live blocks'],
  ['waiting', '--waiting', 'waiting for other streams', 'freed, but another stream may still use it'],
  ['idle', '--idle', 'idle segments', 'nothing in them is in use: returned to the driver when memory is short'],
  ['pages', '--hole', 'free pages', 'whole pages of virtual segments: they move to where they are needed'],
  ['partial', '--partial', 'stuck between blocks', 'free, but in a page or segment that is partly in use'],
];

function showCauses(sum) {
  const bar = element('div', { class: 'stack' });
  const list = element('p', { class: 'legend' });
  for (const [key, colour, name, meaning] of CAUSES) {
    if (sum[key] === 0) continue;
    const share = percent(sum[key], sum.reserved);
    bar.append(element('i', {
      style: `width:${(100 * sum[key]) / sum.reserved}%;background:var(${colour})`, title: `${name}: ${bytes(sum[key])}`,
    }));
    list.append(element('span', { title: meaning, 'data-cause': key, 'data-bytes': sum[key] }, swatch(`var(${colour})`), `${name} ${bytes(sum[key])} (${share})`));
  }
  const total = element('p', {}, element('b', {}, bytes(sum.reserved)), ' reserved');
  document.getElementById('breakdown').replaceChildren(total, bar, list);
}

function showLists(header, lists) {
  const head = ['stream and pool', 'segments', 'reserved', 'live', 'waiting', 'free', 'in runs', 'largest run', 'stuck between blocks']
    .map((title) => ({ title }));
  const pool = (list) => (header.pools.length ? `${poolName(header, list.pool)}, ` : '');
  fillTable('lists', head, lists.map((list) => [
    [swatchFor(list), `${pool(list)}stream ${list.stream}, ${list.large ? 'above 1 MiB' : 'up to 1 MiB'}`],
    number(list.segments), bytes(list.reserved), bytes(list.live), bytes(list.waiting), bytes(list.free),
    number(list.runs), bytes(list.largest), `${bytes(list.partial)} (${percent(list.partial, list.reserved)})`,
  ]));
}

// In the colour that the map has for its stream or pool.
function swatchFor({ stream, pool }) {
  const style = `--by-stream:var(--s-${Math.min(stream, 7)});--by-pool:var(--s-${Math.min(pool, 7)})`;
  return element('i', { class: 'swatch', style });
}

const MOST_HOLDERS = 25;

function showHolders(header, holders, live) {
  const head = [{ title: header.has_stacks ? 'allocated at' : 'allocated under' }, { title: 'blocks' }, { title: 'each' },
    { title: 'bytes' }, { title: 'of what is live' }];
  const most = holders.length > 0 ? holders[0].bytes : 1;
  fillTable('holders', head, holders.slice(0, MOST_HOLDERS).map((group) => [
    group.stack === null ? group.marker || `before the first marker (event ${number(group.first)})` : stackCell(group.stack),
    number(group.count),
    group.stack === null || group.count === 1 ? bytes(group.each) : `${bytes(group.bytes / group.count)} on average`,
    bytes(group.bytes),
    [percent(group.bytes, live), element('span', { class: 'share', style: `width:${Math.max(1, (90 * group.bytes) / most)}px` })],
  ]));
}

function stackCell(stack) {
  const lines = stack.split('\n');
  if (lines.length === 1) return stack || '(no stack)';
  const own = lines.find((line) => !/site-packages|dist-packages|lib\/python|\.cpp:|\.h:|\?\?/.test(line)) || lines[0];
  return element('details', {}, element('summary', {}, own), element('pre', {}, stack));
}
