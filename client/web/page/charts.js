/* One chart: uPlot draws axes, grid and cursor, and this file the curves. Curves of several jobs have points at unlike steps, and uPlot
 * would want one common array of steps. */

const charts = new Map(); // by element
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
let theme = null; // colours of the style sheet, read once

function read_theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  theme = {text: colour("dim"), grid: colour("grid"), fault: colour("bad"), change: colour("dim"),
    curves: [0, 1, 2, 3, 4, 5, 6].map((i) => colour("c" + i))};
}

/* Ticks of a logarithmic axis: powers of ten, with 2 and 5 of each if there are few, or round numbers within one power. (uPlot's own ticks
 * never end if the axis begins at a number such as 0.00097.) */
function log_ticks(min, max) {
  const at = [], step = 10 ** Math.floor(Math.log10((max - min) / 2));
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++)
    for (const digit of max / min > 300 ? [1] : [1, 2, 5]) at.push(Number(digit + "e" + power));
  const inside = at.filter((v) => v >= min && v <= max);
  if (inside.length < 2) for (let v = Math.ceil(min / step) * step; v <= max; v += step) inside.push(v);
  return [...new Set(inside)].sort((a, b) => a - b);
}

function chart_create(element, over, log) {
  const axis = {stroke: () => theme.text, font: "11px system-ui, sans-serif", grid: {stroke: () => theme.grid, width: 1},
    ticks: {show: false}};
  const u = new uPlot({
    width: Math.max(200, element.clientWidth), height: element.clientHeight || 200, padding: [8, 10, 0, 0],
    scales: {x: {time: over === "time", auto: false, min: 0, max: 1}, y: {auto: false, distr: log ? 3 : 1, min: 1, max: 10}},
    series: [{}, {paths: () => null, points: {show: false}}],
    axes: [{...axis, size: 30, space: 70, values: over === "time" ? undefined : (_, at) => at.map((v) => (over === "since" ? span(v * 1000) : v % 1 ? "" : v < 1e6 ? count(v) : number(v)))},
      {...axis, size: 54, space: 34, splits: log ? (_, i, min, max) => log_ticks(min, max) : undefined, filter: (_, at) => at, values: (_, at) => at.map((v) => (v === null ? "" : number(v)))}],
    cursor: {sync: {key: "ddp-" + over}, drag: {x: true, y: false, setScale: false}, points: {show: false}, y: false},
    legend: {show: false},
    hooks: {
      draw: [(self) => chart_draw(charts.get(element), self)],
      setCursor: [() => chart_values(charts.get(element))],
      setSelect: [(self) => {
        const {left, width} = self.select;
        if (width < 4) return;
        self.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
        const [from, to] = [left, left + width].map((at) => self.posToVal(at, "x"));
        go({from: from.toPrecision(13) / 1 + "", to: to.toPrecision(13) / 1 + ""});
      }],
    },
  }, [[0, 1], [1, 1]], element);
  return {u, over, log, curves: [], marks: [], signature: "", near: -1};
}

/* Draws a chart anew if something of it has changed. spec: {curves, marks, over, log, smoothing, from, to}; a curve has series,
 * colour (an index) and dash. legend: the element of the values. */
function chart_update(element, spec, legend) {
  const place = element.getBoundingClientRect();
  if (!place.width || place.bottom < -300 || place.top > innerHeight + 300) return; // drawn when it scrolls into view
  if (!theme) read_theme();
  let chart = charts.get(element);
  if (chart && (chart.over !== spec.over || chart.log !== spec.log)) {
    chart.u.destroy();
    chart = null;
  }
  if (!chart) {
    charts.set(element, (chart = chart_create(element, spec.over, spec.log)));
    element.addEventListener("dblclick", () => go({from: "", to: ""}));
  }
  const width = element.clientWidth, height = element.clientHeight;
  const signature = JSON.stringify([width, height, spec.smoothing, spec.from, spec.to, spec.marks, spec.curves.map((c) =>
    [c.job, c.name, c.rank, c.colour, c.dash, c.label, c.start, c.series.time.length, c.series.time.at(-1), c.series.shapes.size > 0])]);
  if (signature === chart.signature) return;
  Object.assign(chart, spec, {signature, legend, near: -1});
  for (const curve of chart.curves) curve.shape = shape_of(curve.series, spec.over, spec.smoothing, curve.start);
  chart.signature = signature.replaceAll(",false]", ",true]");
  const x = chart_x_range(chart), y = chart_y_range(chart, x);
  if (chart.u.width !== width || chart.u.height !== height) chart.u.setSize({width, height});
  chart.u.batch(() => {
    chart.u.setData([x, [1, 1]], false);
    chart.u.setScale("x", {min: x[0], max: x[1]});
    chart.u.setScale("y", {min: y[0], max: y[1]});
  });
  chart_marks(chart);
  chart_legend(chart);
}

function chart_x_range(chart) {
  let min = Infinity, max = -Infinity;
  for (const {shape} of chart.curves) {
    if (!shape.x.length) continue;
    min = Math.min(min, shape.x[0]);
    max = Math.max(max, shape.x[shape.x.length - 1]);
  }
  if (min > max) [min, max] = [0, 1];
  const from = Number(chart.from), to = Number(chart.to); // anything may be in a URL
  if (chart.to !== "" && Number.isFinite(from) && to - from > Math.abs(to) * 1e-9) [min, max] = [from, to];
  // The ticks of a narrower axis would never end: the distance between them is lost in a sum with a large number.
  const least = Math.max(Math.abs(min), Math.abs(max)) * 1e-12, half = Math.max(0.5, least);
  return max - min > least ? [min, max] : [min - half, max + half];
}

/* The values between the ends of x, with a margin. A smoothed curve decides alone, so that noise does not make it flat. */
function chart_y_range(chart, [from, to]) {
  let min = Infinity, max = -Infinity;
  for (const {shape} of chart.curves) {
    const y = shape.smooth || shape.y;
    for (let i = Math.max(0, index_at(shape.x, from)); i < y.length && shape.x[i] <= to; i++) {
      const v = y[i];
      if (!(Math.abs(v) < 1e300) || (chart.log && v < 1e-290)) continue; // the ticks of a wider axis would never end
      if (v < min) min = v;
      if (v > max) max = v;
    }
  }
  if (min > max) return chart.log ? [0.1, 10] : [0, 1];
  if (chart.log) min = Math.max(min, max * 1e-12); // the average of zeros falls without end
  if (chart.log) return max / min < 1.05 ? [min / 1.3, max * 1.3] : [min / (max / min) ** 0.05, max * (max / min) ** 0.05];
  const margin = max - min > Math.abs(max) * 1e-9 ? (max - min) * 0.06 : Math.abs(max) * 0.1 || 1;
  return [min >= 0 && min - margin < 0 ? 0 : min - margin, max + margin];
}

function chart_draw(chart, u) {
  if (!chart) return;
  const {ctx} = u, ratio = uPlot.pxRatio, box = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left, box.top - 2 * ratio, box.width, box.height + 4 * ratio);
  ctx.clip();
  ctx.lineJoin = "round";
  for (const mark of chart.marks) {
    const x = Math.round(u.valToPos(mark.x, "x", true)) + 0.5;
    ctx.strokeStyle = mark.fault ? theme.fault : theme.change;
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, box.top);
    ctx.lineTo(x, box.top + box.height);
    ctx.stroke();
  }
  const thin = chart.curves.length > 12;
  chart.curves.forEach((curve, i) => {
    const {shape} = curve, near = i === chart.near;
    ctx.strokeStyle = theme.curves[curve.colour % theme.curves.length];
    const dash = DASHES[curve.dash % DASHES.length].map((n) => n * ratio);
    if (shape.smooth && !thin) {
      ctx.globalAlpha = 0.22;
      ctx.lineWidth = ratio;
      curve_stroke(u, shape.x, shape.y, chart.log);
    }
    ctx.globalAlpha = thin && chart.near >= 0 && !near ? 0.35 : 1;
    ctx.lineWidth = (near && chart.curves.length > 1 ? 2.6 : thin ? 1 : 1.6) * ratio;
    curve_stroke(u, shape.x, shape.smooth || shape.y, chart.log, dash);
    ctx.globalAlpha = 1;
  });
  ctx.restore();
}

/* Strokes a curve. Where several points fall into one column of pixels, it draws their first, smallest, largest and last value. A value that
 * is not finite leaves a gap with a cross at the upper edge; a single point becomes a dot. */
function curve_stroke(u, xs, ys, log, dash = []) {
  const {ctx, bbox: box} = u, {min: x0, max: x1} = u.scales.x, {min: y0, max: y1} = u.scales.y;
  const kx = box.width / (x1 - x0), f = log ? Math.log : (v) => v, base = f(y0), ky = box.height / (f(y1) - base);
  const bottom = box.top + box.height, crosses = [];
  let drawn = 0, column = -1, low = 0, high = 0, last = 0, open = false, at = 0;
  const first = Math.max(0, index_at(xs, x0)), end = xs.length;
  const flush = () => {
    if (column < 0) return;
    if (high > low) {
      ctx.lineTo(at, low);
      ctx.lineTo(at, high);
      ctx.lineTo(at, last);
    }
    column = -1;
  };
  ctx.beginPath();
  for (let i = first; i < end; i++) {
    const v = ys[i], x = box.left + (xs[i] - x0) * kx;
    if (!Number.isFinite(v) || (log && v <= 0)) {
      flush();
      open = false;
      if (!Number.isFinite(v)) crosses.push(x);
      continue;
    }
    const y = bottom - (f(v) - base) * ky;
    if (open && column === (x | 0)) {
      if (y < low) low = y;
      if (y > high) high = y;
      last = y;
    } else {
      flush();
      if (open) ctx.lineTo(x, y);
      else ctx.moveTo(x, y);
      column = x | 0;
      at = x;
      low = high = last = y;
      open = true;
      drawn++;
    }
    if (xs[i] > x1) break;
  }
  flush();
  ctx.setLineDash(dash);
  ctx.stroke();
  ctx.setLineDash([]);
  const size = 3 * uPlot.pxRatio;
  if (drawn && drawn < 12 && ctx.globalAlpha > 0.5) {
    for (let i = first; i < end; i++) {
      if (!Number.isFinite(ys[i]) || (log && ys[i] <= 0)) continue;
      ctx.beginPath();
      ctx.arc(box.left + (xs[i] - x0) * kx, bottom - (f(ys[i]) - base) * ky, size * 0.8, 0, 7);
      ctx.fillStyle = ctx.strokeStyle;
      ctx.fill();
    }
  }
  for (const x of crosses) {
    ctx.beginPath();
    ctx.moveTo(x - size, box.top);
    ctx.lineTo(x + size, box.top + 2 * size);
    ctx.moveTo(x + size, box.top);
    ctx.lineTo(x - size, box.top + 2 * size);
    ctx.stroke();
  }
}

/* The marks on the axis are buttons: a triangle is a fault, a diamond a change. Marks close to each other become one with a number. */
function chart_marks(chart) {
  const {u} = chart, placed = [];
  for (const mark of chart.marks) {
    const left = u.valToPos(mark.x, "x");
    if (left < 0 || left > u.over.clientWidth) continue;
    const last = placed.at(-1);
    if (last && left - last.left < 14) {
      last.marks.push(mark);
      last.fault = last.fault || mark.fault;
    } else {
      placed.push({left, marks: [mark], fault: mark.fault});
    }
  }
  if (!chart.layer) {
    chart.layer = make_element("div");
    chart.layer.className = "marks";
    u.over.append(chart.layer);
  }
  patch(chart.layer, placed.map(({left, marks, fault}) => h("button", {
    type: "button", class: fault ? "mark fault" : "mark change", css: {left: left + "px"}, "data-act": "event", "data-event": String(marks.at(-1).id),
    tabindex: chart.first ? "0" : "-1", title: marks.map((m) => plain(m.text)).join("\n"), "aria-label": marks.map((m) => plain(m.text)).join("; "),
  }, fault ? "▲" : "◆", marks.length > 1 ? h("sub", marks.length) : null)));
}

const LEGEND_LINES = 6;

function chart_legend(chart) {
  const few = chart.curves.length <= LEGEND_LINES;
  patch(chart.legend, few ? chart.curves.map((curve, i) => h("span.item", {key: i},
    chart.curves.length > 1 ? curve_sample(curve) : null, chart.curves.length > 1 ? h("span", curve.label) : null, h("b", {own: true})))
    : h("span.item", {key: "near"}, h("b", {own: true})));
  chart.cells = [...chart.legend.querySelectorAll("b")];
  chart_values(chart);
}

function curve_sample(curve) {
  return h("svg.sample", {width: "22", height: "8", "aria-hidden": "true"},
    h("line", {x1: "0", x2: "22", y1: "4", y2: "4", class: "k" + (curve.colour % 7), "stroke-dasharray": DASHES[curve.dash % DASHES.length].join(" ")}));
}

/* Writes the values below the cursor into the legend, or the last ones. With many curves, those of the nearest curve. */
function chart_values(chart) {
  if (!chart || !chart.cells) return;
  const {u, curves, cells} = chart, {left, top} = u.cursor, inside = left !== undefined && left >= 0;
  const x = inside ? u.posToVal(left, "x") : Infinity;
  const value_at = ({shape}) => {
    const i = index_at(shape.x, x);
    return i < 0 ? undefined : (shape.smooth || shape.y)[i];
  };
  if (curves.length <= LEGEND_LINES) {
    curves.forEach((curve, i) => {
      const text = number(value_at(curve));
      if (cells[i] && cells[i].textContent !== text) cells[i].textContent = text;
    });
    return;
  }
  let near = -1, distance = 40;
  const mine = u.over.matches(":hover");
  for (let i = 0; inside && mine && i < curves.length; i++) {
    const v = value_at(curves[i]);
    const away = v === undefined || !Number.isFinite(v) ? Infinity : Math.abs(u.valToPos(v, "y") - top);
    if (away < distance) [near, distance] = [i, away];
  }
  cells[0].textContent = near < 0 ? curves.length + " curves" : curves[near].full + "  " + number(value_at(curves[near]));
  if (near !== chart.near) {
    chart.near = near;
    u.redraw(false, false);
  }
}

/* Releases the charts whose elements have left the page. */
function charts_sweep() {
  for (const [element, chart] of charts)
    if (!element.isConnected) {
      chart.u.destroy();
      charts.delete(element);
    }
}

function charts_restyle() {
  theme = null;
  for (const chart of charts.values()) chart.signature = "";
  draw_soon();
}
