// The schedules of the trade-off curve, which the page holds: what is dragged is drawn without asking for it.
// A frame is [peak, rows, largest, lengths of runs, R, S and U, these as a zlib stream, journeys]; peaks ascend.
const PARTS = ["runs", "R", "S", "U"];
const NOTHING = new DataView(new ArrayBuffer(0));
const MORPH = 150; // milliseconds in which a picture becomes the next one

async function unpackFrame([, rows, largest, lengths, packed, journeys]) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const frame = { rows, largest, journeys, compared_computed: NOTHING, compared_kept: NOTHING };
  PARTS.forEach((name, i) => {
    const at = lengths.slice(0, i).reduce((sum, length) => sum + length, 0);
    frame[name] = new DataView(bytes, at, lengths[i]);
  });
  return frame;
}

// The number of the last entry of `steps` that begins at or below `count`, or -1; their first parts ascend.
function lastWithin(steps, count) {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle][0] <= count) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function sameBytes(one, other) {
  const [a, b] = [one, other].map((view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

const sameFrame = (one, other) => String(one.slice(0, 4)) === String(other.slice(0, 4)) && sameBytes(one[4], other[4]);

// Unpacks all frames of a model, in the pauses of the page, those that it had before excepted: while a sweep goes on the
// curve comes again and again. `within` is the best one for a budget that is there already, or null.
function frameStore(model) {
  let [frames, unpacked] = [[], []];
  async function load() {
    const [latest, before, known] = [model.get("frames"), frames, unpacked];
    const had = (frame) => known[before.findIndex((other) => sameFrame(frame, other))] ?? null;
    [frames, unpacked] = [latest, latest.map(had)];
    for (let i = 0; i < latest.length && frames === latest; i++) unpacked[i] ??= await unpackFrame(latest[i]);
  }
  const within = (budget) => unpacked.slice(0, lastWithin(frames, budget) + 1).findLast((frame) => frame) ?? null;
  return { load, within };
}

// A model's methods as functions.
function bound(model) {
  const methods = ["get", "set", "on", "send", "save_changes"].map((name) => [name, (...given) => model[name](...given)]);
  return Object.fromEntries(methods);
}

// Leave the picture of a canvas where it is, and let it fade.
function leaveBehind(canvas) {
  if (canvas.width === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const before = canvas.cloneNode();
  before.getContext("2d").drawImage(canvas, 0, 0);
  before.style.pointerEvents = "none";
  canvas.after(before);
  before.animate([{ opacity: 1 }, { opacity: 0 }], MORPH).onfinish = () => before.remove();
}
