// Unpacks the tables: columns of differences, seven bits a byte, gzip, base64.

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function columnReader(bytes) {
  let at = 0;
  return (count, Kind) => {
    const out = new Kind(count);
    let last = 0;
    for (let i = 0; i < count; i++) {
      let value = 0;
      let scale = 1;
      let byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * scale;
        scale *= 128;
      } while (byte & 128);
      last += value % 2 === 0 ? value / 2 : -(value + 1) / 2;
      out[i] = last;
    }
    return out;
  };
}

const NEVER = 0xffffffff;

// Durations that end; 0 stands for "not until the end".
function moments(starts, durations) {
  const out = new Uint32Array(starts.length);
  for (let i = 0; i < out.length; i++) {
    out[i] = durations[i] === 0 || starts[i] === NEVER ? NEVER : starts[i] + durations[i] - 1;
  }
  return out;
}

async function readTables(header, text) {
  const column = columnReader(await inflate(text));
  const n = header.blocks;
  const blocks = {
    count: n,
    addr: column(n, Float64Array),
    size: column(n, Float64Array),
    slack: column(n, Float64Array),
    stream: column(n, Uint16Array),
    allocated: column(n, Uint32Array),
  };
  blocks.freed = moments(blocks.allocated, column(n, Uint32Array));
  blocks.reusable = moments(blocks.freed, column(n, Uint32Array));
  blocks.stack = header.has_stacks ? column(n, Uint32Array) : null;
  const m = header.ranges;
  const ranges = {
    count: m,
    addr: column(m, Float64Array),
    size: column(m, Float64Array),
    stream: column(m, Uint16Array),
    large: column(m, Uint8Array),
    pool: column(m, Uint16Array),
    page: column(m, Float64Array),
    begins: column(m, Uint32Array),
  };
  ranges.ends = moments(ranges.begins, column(m, Uint32Array));
  return { blocks, ranges };
}
