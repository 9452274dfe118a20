// Rectangles, lines and axes: once for each change of the plan, the zoom or the colours. The cursor is on an overlay.
const NAME_WIDTH = 46; // pixels from which on a rectangle carries its name, even if it is shortened
const LEAST_WIDTH = 16; // and from which on if all of it fits
const NAME_HEIGHT = 12;
const MOST_NAMES = 500;
const ALTERNATE = 0.16; // of every other rectangle, so that many thin ones are not one area
const FADED = 0.16; // of what is at none of two moments that are compared

function lightness(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b;
}

// Colours of layers come again after their number; then they are nearer to the ground.
function mixed(hex, ground, share) {
  const parts = [1, 3, 5].map((at) => {
    const [own, other] = [hex, ground].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(own * (1 - share) + other * share);
  });
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function groupColour(colours, group) {
  const round = Math.floor(group / colours.layers.length) % 3;
  return mixed(colours.layers[group % colours.layers.length], colours.ground, 0.3 * round);
}

function fillOf(model, data, colours, classes) {
  if (classes) {
    const shades = [null, colours.only_first, colours.only_second, colours.both];
    return (i) => shades[classes[i]] ?? colours.kinds[data.kind[i]];
  }
  const alternating = (colour) => [colour, mixed(colour, colours.ground, ALTERNATE)];
  if (model.get("map_colours") === "kind") {
    const shades = colours.kinds.map(alternating);
    return (i) => shades[data.kind[i]][i & 1];
  }
  const shades = data.groups.map((_, group) => alternating(groupColour(colours, group)));
  return (i) => {
    const layer = layerOf(data, data.value[i]);
    return layer < 0 ? colours.resident : shades[data.layers[layer][1]][i & 1];
  };
}

function drawRectangles(context, data, space, ratio, fill, classes) {
  const named = [];
  let shade = null;
  for (const i of data.order) {
    if (data.begin[i] >= space.to || data.end[i] <= space.from) continue;
    const left = Math.round(space.x(Math.max(data.begin[i], space.from)) * ratio);
    const right = Math.round(space.x(Math.min(data.end[i], space.to)) * ratio);
    const high = Math.round(space.y(data.offset[i] + data.bytes[i]) * ratio);
    const low = Math.round(space.y(data.offset[i]) * ratio);
    let [width, height, top] = [Math.max(1, right - left), Math.max(1, low - high), Math.min(high, low - 1)];
    if (width > 5) width -= 1; // a seam between neighbours
    if (height > 4) [height, top] = [height - 1, top + 1];
    const next = fill(i);
    if (next !== shade) context.fillStyle = shade = next;
    if (classes) context.globalAlpha = classes[i] ? 1 : FADED;
    context.fillRect(left, top, width, height);
    if (width >= LEAST_WIDTH * ratio && height >= NAME_HEIGHT * ratio && named.length < MOST_NAMES && !(classes && !classes[i]))
      named.push({ i, left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio, shade });
  }
  context.globalAlpha = 1;
  return named;
}

function drawNames(context, data, named) {
  context.font = `10px ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const letter = context.measureText("abcdefghijklmnopqrstuvwxyz._0").width / 29;
  for (const { i, left, top, width, height, shade } of named) {
    const [name, fits] = [nameIn(data, data.value[i]), Math.floor((width - 6) / letter)];
    if (name.length > fits && width < NAME_WIDTH) continue;
    const said = name.length <= fits ? name : `${name.slice(0, Math.ceil(fits / 2) - 1)}…${name.slice(name.length - Math.floor(fits / 2))}`;
    context.fillStyle = lightness(shade) > 125 ? "#000000" : "#ffffff";
    context.fillText(said, left + 3, top + height / 2, width - 6);
  }
}

function steps(context, numbers, space) {
  context.beginPath();
  for (let c = space.from; c < Math.min(space.to, numbers.length); c++) {
    const y = space.y(numbers[c]);
    if (c === space.from) context.moveTo(space.x(c), y);
    else context.lineTo(space.x(c), y);
    context.lineTo(space.x(c + 1), y);
  }
  context.stroke();
}

function drawLines(context, model, data, space, colours) {
  context.save();
  context.beginPath();
  context.rect(space.left, space.top, space.width, space.height);
  context.clip();
  Object.assign(context, { strokeStyle: colours.predicted, lineWidth: 1, globalAlpha: 0.6 });
  context.setLineDash([]);
  steps(context, data.predicted, space);
  context.globalAlpha = 1;
  if (data.measured.length) {
    for (const [width, colour] of [[4, colours.ground], [2, colours.measured]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.setLineDash(colour === colours.measured ? [2, 2] : []);
      steps(context, data.measured, space);
    }
  }
  if (space.budgetFits) {
    Object.assign(context, { strokeStyle: colours.budget, lineWidth: 1.5 });
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(space.left, space.y(model.get("budget")));
    context.lineTo(space.left + space.width, space.y(model.get("budget")));
    context.stroke();
  }
  context.restore();
}

// Multiples of a power of two of bytes, at most about six.
function byteTicks({ floor, reach }) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((reach - floor) / 6)));
  const ticks = [];
  for (let bytes = Math.ceil(floor / step) * step; bytes <= reach; bytes += step) ticks.push(bytes);
  return ticks;
}

function drawAxes(context, model, data, space, colours) {
  context.font = `11px ${FONT}`;
  Object.assign(context, { fillStyle: colours.ink, strokeStyle: colours.grid, lineWidth: 1, textBaseline: "middle", textAlign: "right" });
  context.setLineDash([]);
  for (const bytes of byteTicks(space)) {
    const y = Math.round(space.y(bytes)) + 0.5;
    context.beginPath();
    context.moveTo(space.left, y);
    context.lineTo(space.left + space.width, y);
    context.stroke();
    context.fillText(formatBytes(bytes), space.left - 4, y);
  }
  context.strokeRect(space.left - 0.5, space.top - 0.5, space.width + 1, space.height + 1);
  context.textAlign = "center";
  context.textBaseline = "top";
  let right = -Infinity;
  for (let stage = space.first; stage <= space.last; stage++) {
    const x = (space.x(data.starts[stage]) + space.x(data.starts[stage + 1])) / 2;
    const half = context.measureText(stage).width / 2;
    if (x - half < right + 18 || x + half > space.left + space.width + MAP.right) continue;
    context.fillText(stage, x, space.base + 4);
    right = x + half;
  }
  context.textBaseline = "bottom";
  context.fillText(TIME_WORDS + (model.get("folded").length ? `; ${UNFOLDED_WORDS}` : ""), space.left + space.width / 2, space.bottom);
}

function drawStrip(context, model, space, colours) {
  if (!space.strip) return;
  context.fillStyle = colours.ground;
  context.fillRect(space.left, space.base - space.strip - 1, space.width, 2); // the axis is broken here
  context.font = `10px ${FONT}`;
  Object.assign(context, { fillStyle: lightness(colours.resident) > 125 ? "#000000" : "#ffffff", textAlign: "left", textBaseline: "middle" });
  context.fillText(`resident, ${formatBytes(model.get("resident"))} (not to scale)`, space.left + 4, space.base - space.strip / 2);
}

// Stage, value and what is pointed at, over the map.
function drawOver(context, model, data, space, colours, hovered, moments) {
  const [stage, value] = [model.get("stage"), model.get("value")];
  const bar = (from, to, colour, alpha) => {
    const [left, right] = [space.x(Math.max(from, space.from)), space.x(Math.min(to, space.to))];
    if (to < space.from || from > space.to) return;
    const width = Math.max(right - left, 2);
    Object.assign(context, { fillStyle: colour, globalAlpha: alpha });
    context.fillRect((left + right - width) / 2, space.top, width, space.height);
    context.globalAlpha = 1;
  };
  if (stage < data.stages) bar(data.starts[stage], data.starts[stage + 1], colours.cursor, 0.3);
  for (const [moment, colour] of moments ? [[moments.first, colours.only_first], [moments.second, colours.only_second]] : [])
    if (moment.at !== undefined) bar(moment.at + 0.5, moment.at + 0.5, colour, 0.9);
  const outline = (i, colour, width, dash) => {
    if (data.begin[i] >= space.to || data.end[i] <= space.from) return;
    const [left, right] = [space.x(Math.max(data.begin[i], space.from)), space.x(Math.min(data.end[i], space.to))];
    const [high, low] = [space.y(data.offset[i] + data.bytes[i]), space.y(data.offset[i])];
    Object.assign(context, { strokeStyle: colour, lineWidth: width });
    context.setLineDash(dash);
    context.strokeRect(left, Math.min(high, low - 2), Math.max(right - left, 2), Math.max(low - high, 2));
  };
  for (const i of data.rectanglesOf(value)) {
    outline(i, colours.ground, 4, []);
    outline(i, colours.cursor, 2.5, []);
  }
  if (hovered >= 0)
    for (const i of data.rectanglesOf(data.value[hovered])) outline(i, colours.ink, i === hovered ? 1.5 : 1, i === hovered ? [] : [3, 3]);
}
