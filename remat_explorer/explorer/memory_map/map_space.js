// From computations and bytes to places on the canvas, and back. Resident bytes, where they are much, are a strip of
// their own at the bottom: drawn to scale they would leave no room for what changes.
const MAP = { left: 64, right: 8, top: 8, bottom: 32, strip: 15 };
const MUCH = 0.2; // share of the map from which on resident bytes are a strip
const BUDGET_SEEN = 1.4; // times the height of the rest, up to which the axis reaches to the budget
const ROOM = 1.03;

// The stages on the screen, of the zoom that matrices and map have in common.
function stagesOf(data, zoom) {
  const inside = (stage) => Math.max(0, Math.min(data.stages - 1, stage));
  return zoom.length === 4 ? [inside(zoom[0]), inside(zoom[1])] : [0, Math.max(0, data.stages - 1)];
}

function spaceOf(model, data, width, height) {
  const [first, last] = stagesOf(data, model.get("zoom"));
  const [from, to] = [data.starts[first] ?? 0, Math.max(data.starts[last + 1] ?? 1, (data.starts[first] ?? 0) + 1)];
  const [resident, budget] = [model.get("resident"), model.get("budget")];
  let top = 1;
  for (let i = 0; i < data.count; i++)
    if (data.begin[i] < to && data.end[i] > from) top = Math.max(top, data.offset[i] + data.bytes[i]);
  for (const line of [data.predicted, data.measured])
    for (let c = from; c < Math.min(to, line.length); c++) top = Math.max(top, line[c]);
  const budgetFits = budget > 0 && budget <= BUDGET_SEEN * top;
  if (budgetFits) top = Math.max(top, budget);
  const stripped = data.residentIsLow && resident > MUCH * top && resident < top;
  const floor = stripped ? resident : 0;
  const strip = stripped ? MAP.strip : 0;
  const area = { left: MAP.left, top: MAP.top, width: width - MAP.left - MAP.right, height: height - MAP.top - MAP.bottom };
  const [base, reach] = [area.top + area.height, floor + ROOM * (top - floor)];
  const across = area.width / (to - from);
  const up = (area.height - strip) / (reach - floor);
  return {
    ...area,
    first,
    last,
    from,
    to,
    floor,
    strip,
    reach,
    base,
    budgetFits,
    bottom: height,
    x: (computation) => area.left + (computation - from) * across,
    y: (bytes) => (bytes < floor ? base - (strip * bytes) / floor : base - strip - (bytes - floor) * up),
    computation: (x) => from + Math.floor((x - area.left) / across),
    holds: (x, y) => x >= area.left && x < area.left + area.width && y >= area.top && y < base,
  };
}

const SNAP = 6; // pixels from a rectangle at which it is still meant
const THIN = 3; // pixels; what is thinner is meant before what surrounds it

// The rectangle at a place, or the nearest one above or below it within SNAP; -1 where there is none.
function rectangleAt(data, space, x, y) {
  const computation = space.computation(x);
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < data.count; i++) {
    if (data.begin[i] > computation || data.end[i] <= computation) continue;
    const [high, low] = [space.y(data.offset[i] + data.bytes[i]), space.y(data.offset[i])];
    const away = y < high ? high - y : y > low ? y - low : 0;
    const thin = low - high < THIN;
    const distance = thin && away <= 1.5 ? -1 : away + (away > 0 ? 1 : 0);
    if (distance < least && away <= SNAP) [best, least] = [i, distance];
  }
  return best;
}
