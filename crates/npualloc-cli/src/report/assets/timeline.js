// Reserved, active and live bytes over events.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as large as it is shown; drawing is in CSS pixels.
function fit(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { pen, width, height };
}

function niceStep(range, wanted) {
  const rough = range / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

const LEFT = 62;
const RIGHT = 12;
const TOP = 16;
const BOTTOM = 24;

function createTimeline(canvas, header, series, choose) {
  const levels = { reserved: pyramid(series.reserved), active: pyramid(series.active), live: pyramid(series.live) };
  const events = header.events;
  const peak = extremes(levels.reserved, 0, events)[1];
  const capacity = header.capacity;
  const top = Math.max(peak, capacity <= peak * 1.6 ? capacity : 0) * 1.06 || 1;
  let view = [0, events];
  let moment = 0;

  const inner = (width) => width - LEFT - RIGHT;
  const xOf = (at, width) => LEFT + ((at - view[0]) / (view[1] - view[0])) * inner(width);
  const atOf = (x) => {
    const width = canvas.getBoundingClientRect().width;
    const at = Math.floor(view[0] + ((x - LEFT) / inner(width)) * (view[1] - view[0]));
    return Math.max(0, Math.min(events - 1, at));
  };

  function drawAxes(pen, width, height) {
    const yOf = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
    const [unit, name] = UNITS.find(([size]) => top >= size) || [1, 'B'];
    pen.font = '11px system-ui, sans-serif';
    pen.lineWidth = 1;
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    const step = niceStep(top / unit, 5);
    for (let value = 0; value * unit <= top; value += step) {
      const y = Math.round(yOf(value * unit)) + 0.5;
      pen.strokeStyle = css('--line');
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(width - RIGHT, y);
      pen.stroke();
      pen.fillStyle = css('--quiet');
      pen.fillText(`${Number(value.toFixed(6))} ${name}`, LEFT - 6, y);
    }
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    const stride = Math.max(1, niceStep(view[1] - view[0], 8));
    for (let at = Math.ceil(view[0] / stride) * stride; at <= view[1]; at += stride) {
      const x = xOf(at, width);
      if (x > width - 40) break;
      pen.fillText(number(at), x, height - BOTTOM + 8);
    }
    return yOf;
  }

  function area(pen, width, height, yOf, which, colour, strength) {
    const base = height - BOTTOM;
    const pixels = Math.ceil(inner(width));
    const span = (view[1] - view[0]) / pixels;
    const low = new Path2D();
    const high = new Path2D();
    const line = new Path2D();
    low.moveTo(LEFT, base);
    high.moveTo(LEFT, base);
    for (let pixel = 0; pixel < pixels; pixel++) {
      const from = Math.floor(view[0] + pixel * span);
      const [least, most] = extremes(levels[which], from, Math.max(from + 1, Math.floor(view[0] + (pixel + 1) * span)));
      const x = LEFT + pixel;
      low.lineTo(x, yOf(Math.max(0, least)));
      high.lineTo(x, yOf(Math.max(0, most)));
      if (pixel === 0) line.moveTo(x, yOf(most)); else line.lineTo(x, yOf(most));
    }
    for (const path of [low, high]) path.lineTo(LEFT + pixels - 1, base);
    pen.fillStyle = colour;
    pen.globalAlpha = strength / 2;
    pen.fill(high);
    pen.globalAlpha = strength;
    pen.fill(low);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2;
    pen.stroke(line);
  }

  function drawMarkers(pen, width, height) {
    const shown = header.markers.filter(([at]) => at >= view[0] && at <= view[1]);
    pen.fillStyle = css('--quiet');
    const every = Math.ceil(shown.length / (inner(width) / 3));
    for (let i = 0; i < shown.length; i += Math.max(1, every)) {
      pen.fillRect(xOf(shown[i][0], width), height - BOTTOM, 1, 5);
    }
  }

  function vertical(pen, x, height, colour, dash) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, height - BOTTOM);
    pen.stroke();
    pen.setLineDash([]);
  }

  function draw() {
    const { pen, width, height } = fit(canvas);
    pen.clearRect(0, 0, width, height);
    const yOf = drawAxes(pen, width, height);
    area(pen, width, height, yOf, 'reserved', css('--partial'), 0.38);
    area(pen, width, height, yOf, 'active', css('--waiting'), 0.55);
    area(pen, width, height, yOf, 'live', css('--live'), 0.8);
    drawMarkers(pen, width, height);
    if (capacity <= top) {
      const y = Math.round(yOf(capacity)) + 0.5;
      pen.strokeStyle = css('--danger');
      pen.setLineDash([6, 4]);
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(width - RIGHT, y);
      pen.stroke();
      pen.setLineDash([]);
      pen.fillStyle = css('--danger');
      pen.textAlign = 'left';
      pen.textBaseline = 'bottom';
      pen.fillText(`device: ${bytes(capacity)}`, LEFT + 6, y - 2);
    }
    const oom = header.out_of_memory;
    if (oom && oom.at >= view[0] && oom.at <= view[1]) {
      const x = xOf(oom.at, width);
      vertical(pen, x, height, css('--danger'), []);
      pen.fillStyle = css('--danger');
      pen.textAlign = x > width / 2 ? 'right' : 'left';
      pen.textBaseline = 'bottom';
      pen.fillText('out of memory', x + (x > width / 2 ? -5 : 5), TOP);
    }
    const x = xOf(moment, width);
    if (x >= LEFT && x <= width - RIGHT) {
      vertical(pen, x, height, css('--pick'), [3, 3]);
      pen.fillStyle = css('--pick');
      pen.beginPath();
      pen.arc(x, TOP, 4, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  function zoom(at, factor) {
    const span = Math.min(events, Math.max(20, (view[1] - view[0]) * factor));
    const share = (at - view[0]) / (view[1] - view[0]);
    const from = Math.max(0, Math.min(events - span, at - share * span));
    view = [from, from + span];
    requestAnimationFrame(draw);
  }

  let grabbed = null;
  canvas.addEventListener('pointerdown', (event) => {
    grabbed = { x: event.offsetX, view: [...view], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!grabbed || view[1] - view[0] >= events) return;
    const shift = ((grabbed.x - event.offsetX) / inner(canvas.clientWidth)) * (view[1] - view[0]);
    if (Math.abs(event.offsetX - grabbed.x) < 3 && !grabbed.moved) return;
    grabbed.moved = true;
    const span = view[1] - view[0];
    const from = Math.max(0, Math.min(events - span, grabbed.view[0] + shift));
    view = [from, from + span];
    requestAnimationFrame(draw);
  });
  canvas.addEventListener('pointerup', (event) => {
    if (grabbed && !grabbed.moved) choose(atOf(event.offsetX));
    grabbed = null;
  });
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(atOf(event.offsetX), event.deltaY > 0 ? 1.25 : 0.8);
  }, { passive: false });
  canvas.addEventListener('dblclick', () => {
    view = [0, events];
    draw();
  });
  canvas.addEventListener('keydown', (event) => {
    const pixel = Math.max(1, Math.round((view[1] - view[0]) / inner(canvas.clientWidth)));
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(events - 1, moment + step * (event.shiftKey ? 1 : pixel))));
  });
  return {
    draw,
    atOf,
    show(at) {
      moment = at;
      if (at < view[0] || at > view[1]) view = [0, events];
      draw();
    },
  };
}
