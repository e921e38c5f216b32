// Ranges of memory one after the other, wrapped like text, with the blocks in them.

const ROW = 16;
const GAP = 4;
const ROWS = 30;

function ageColours() {
  return [5, 4, 3, 2, 1, 0].map((step) => css(`--age-${step}`));
}

const streamColour = (stream) => css(`--s-${Math.min(stream, 7)}`);

function createMap(canvas, tables, describe) {
  const { blocks, ranges } = tables;
  let memory = [];
  let at = 0;
  let mode = 'age';
  let pieces = [];

  // Positions of ranges in pixels along one endless line. A gap of two pixels follows each.
  function layOut(width) {
    let total = 0;
    for (const { range } of memory) total += ranges.size[range];
    const gaps = Math.max(0, memory.length - 1) * 2;
    const rows = Math.max(1, Math.min(ROWS, Math.ceil(total / 2 ** 30)));
    let pixels = Math.max(total > 0 ? width : 0, rows * width - gaps);
    // Many small segments: the gaps alone fill rows.
    if (pixels < gaps) pixels = gaps;
    const scale = total / pixels || 1;
    let x = 0;
    pieces = memory.map(({ range, blocks: inside }) => {
      const piece = { range, inside, x, width: Math.max(1, ranges.size[range] / scale) };
      x += piece.width + 2;
      return piece;
    });
    return { scale, rows: Math.max(1, Math.ceil((x - 2 - 1e-6) / width)) };
  }

  function drawSpan(pen, width, from, length, colour) {
    pen.fillStyle = colour;
    let x = from;
    let rest = length;
    while (rest > 1e-6) {
      const row = Math.floor(x / width);
      const inRow = x - row * width;
      const piece = Math.min(rest, width - inRow);
      if (piece <= 1e-9) break;
      pen.fillRect(inRow, row * (ROW + GAP), piece, ROW);
      x += piece;
      rest -= piece;
    }
  }

  function colourOf(palette, block, range) {
    if (blocks.freed[block] <= at) return palette.waiting;
    if (mode === 'pool') return palette.streams[Math.min(ranges.pool[range], 7)];
    if (mode === 'stream') return palette.streams[Math.min(blocks.stream[block], 7)];
    const age = at - blocks.allocated[block];
    const share = Math.log2(age + 1) / Math.log2(at + 2);
    return palette.ages[Math.min(5, Math.floor(share * 6))];
  }

  function draw() {
    const width = canvas.parentElement.clientWidth - 32;
    const { scale, rows } = layOut(width);
    canvas.style.height = `${rows * (ROW + GAP)}px`;
    const { pen } = fit(canvas);
    pen.clearRect(0, 0, width, rows * (ROW + GAP));
    const palette = {
      waiting: css('--waiting'),
      ages: ageColours(),
      streams: Array.from({ length: 8 }, (_, stream) => streamColour(stream)),
    };
    const free = css('--free');
    const edge = css('--free-edge');
    for (const piece of pieces) {
      drawSpan(pen, width, piece.x, piece.width, free);
      const own = mode === 'pool';
      drawSpan(pen, width, piece.x, Math.min(own ? 2 : 1, piece.width), own ? palette.streams[Math.min(ranges.pool[piece.range], 7)] : edge);
      const start = ranges.addr[piece.range];
      for (const block of piece.inside) {
        const from = piece.x + (blocks.addr[block] - start) / scale;
        const length = blocks.size[block] / scale;
        // A hair between neighbours that are wide enough to have one.
        drawSpan(pen, width, from, length > 3 ? length - 0.7 : length, colourOf(palette, block, piece.range));
      }
    }
  }

  function under(x, y) {
    const width = canvas.parentElement.clientWidth - 32;
    const along = Math.floor(y / (ROW + GAP)) * width + x;
    const piece = pieces.find((one) => along >= one.x && along < one.x + one.width);
    if (!piece) return null;
    const offset = ((along - piece.x) / piece.width) * ranges.size[piece.range];
    const addr = ranges.addr[piece.range] + offset;
    let low = 0;
    let high = piece.inside.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (blocks.addr[piece.inside[middle]] <= addr) low = middle + 1; else high = middle;
    }
    const block = piece.inside[low - 1];
    const hit = block !== undefined && addr < blocks.addr[block] + blocks.size[block];
    return { range: piece.range, block: hit ? block : null, addr };
  }

  return {
    draw,
    under,
    describe: (x, y) => {
      const hit = under(x, y);
      return hit && describe(hit);
    },
    show(nextMemory, nextAt) {
      memory = nextMemory;
      at = nextAt;
      draw();
    },
    colourBy(next) {
      mode = next;
      draw();
    },
  };
}
