// Memory as a tank: its rim is the budget, its content the values that are in memory, those born first at the bottom.
const RESIDENT = 0.2; // of the height at most: resident bytes may be many times the rest
const RIM = 0.5; // of the height at least, however much keeping everything takes
const NAME = 11; // pixels of a block from which on its name fits

// From bytes to pixels above the ground: resident bytes have a scale of their own where they are most of it.
function tankScale(resident, budget, most, height) {
  const rim = Math.max(budget || most, resident + 1);
  const top = Math.max(Math.min(Math.max(most, rim), resident + (rim - resident) / RIM), rim);
  const torn = resident / top > RESIDENT;
  const ground = torn ? RESIDENT * height : (resident / top) * height;
  const unit = (height - ground) / Math.max(top - resident, 1);
  const up = (bytes) => (bytes <= resident ? (bytes / Math.max(resident, 1)) * ground : ground + (bytes - resident) * unit);
  return { up, torn, ground, rim: budget ? up(budget) : height, height, cut: most > top * 1.001 };
}

// Where each block lies: its lower and upper edge in bytes.
function piled({ blocks, passing }, resident) {
  const places = new Map();
  let held = resident;
  for (const block of blocks) {
    places.set(block.key, { block, low: held, high: held + block.bytes });
    held += block.bytes;
  }
  return { places, held, high: held + passing };
}

function blockColour(block, stage, data, palette) {
  if (block.persistent) return palette.gradients;
  if (block.stage !== stage) return palette.kept;
  return block.again ? palette.recompute : data.rail[block.operation] ? palette.backward : palette.forward;
}

// Dark or light letters, whichever are read more easily on a colour.
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111111" : "#ffffff";
}

const mixed = (a, b, share) => a + (b - a) * share;

// One tank between two moments: `before` and `now` are piles, `share` how far it is from one to the other, and `flash`
// says how fresh a block that is computed again is, from 1 to 0.
function drawTank(context, box, scale, { before, now, share, stage, flash, data, palette }) {
  const [left, bottom, width] = [box.x, box.y + box.height, box.width];
  const y = (bytes) => bottom - Math.min(scale.up(bytes), scale.height + 12);
  const colour = (block) => blockColour(block, stage, data, palette);
  const labels = []; // drawn last: hatching would make them illegible
  context.save();
  context.beginPath();
  context.rect(left - 6, box.y - 2, width + 12, box.height + 4);
  context.clip();

  if (scale.ground > 0) {
    context.fillStyle = palette.resident;
    context.fillRect(left, bottom - scale.ground, width, scale.ground);
    if (scale.torn) tear(context, left, bottom - scale.ground / 6, width, palette);
    if (scale.ground >= NAME) label(context, "resident", formatBytes(data.resident), left, bottom - scale.ground, width, scale.ground, inkOn(palette.resident));
  }
  const paint = (block, low, high, alpha) => {
    const [top, height] = [y(high), y(low) - y(high)];
    if (height <= 0 || alpha <= 0) return;
    const gap = height > 3 ? 1 : 0;
    context.globalAlpha = alpha;
    context.fillStyle = colour(block);
    context.fillRect(left, top + gap, width, Math.max(height - gap, 0.35));
    const fresh = block.again ? flash(block) : 0;
    if (fresh > 0) {
      context.globalAlpha = alpha * fresh;
      context.strokeStyle = palette.ink;
      context.lineWidth = Math.min(4, height / 3);
      context.strokeRect(left - 1, top, width + 2, height);
      context.fillStyle = palette.ground;
      context.globalAlpha = 0.5 * alpha * fresh;
      context.fillRect(left, top + gap, width, Math.max(height - gap, 0.35));
      context.globalAlpha = alpha;
    }
    if (height < NAME) return;
    labels.push([alpha, data.values[block.value][0], formatBytes(block.bytes), left, top, width, height, inkOn(colour(block))]);
  };
  for (const [key, { block, low, high }] of before.places)
    if (!now.places.has(key)) paint(block, low, high, 1 - share);
  for (const [key, { block, low, high }] of now.places) {
    const old = before.places.get(key);
    if (old) paint(block, mixed(old.low, low, share), mixed(old.high, high, share), 1);
    else paint(block, low + (1 - share) * 0.1 * (high - low), high, share);
  }
  context.globalAlpha = 1;
  if (now.high > now.held) hatch(context, left, y(now.high), width, y(now.held) - y(now.high), palette.ink, 0.45 * share);
  context.restore();
  drawWalls(context, box, scale, palette);
  const over = mixed(before.high, now.high, share);
  if (scale.up(over) > scale.rim + 0.5) {
    hatch(context, left, y(over), width, bottom - scale.rim - y(over), palette.budget, 0.5);
    context.strokeStyle = palette.budget;
    context.lineWidth = 2;
    context.strokeRect(left, y(over), width, bottom - scale.rim - y(over));
  }
  context.save();
  context.beginPath();
  context.rect(left - 6, box.y - 2, width + 12, box.height + 4);
  context.clip();
  for (const [alpha, ...words] of labels) {
    context.globalAlpha = alpha;
    label(context, ...words);
  }
  context.restore();
}

// Walls up to the rim, which is the budget.
function drawWalls(context, { x, y, width, height }, scale, palette) {
  const rim = y + height - scale.rim;
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - 3, rim);
  context.lineTo(x - 3, y + height + 1);
  context.lineTo(x + width + 3, y + height + 1);
  context.lineTo(x + width + 3, rim);
  context.stroke();
}

// How high memory has been until now.
function drawMark(context, box, scale, bytes, palette) {
  const y = box.y + box.height - Math.min(scale.up(bytes), scale.height);
  context.fillStyle = palette.ink;
  context.beginPath();
  context.moveTo(box.x - 4, y);
  context.lineTo(box.x - 11, y - 4);
  context.lineTo(box.x - 11, y + 4);
  context.fill();
}

function tear(context, left, y, width, palette) {
  context.beginPath();
  for (let x = 0; x <= width; x += 6) context.lineTo(left + x, y + (x % 12 ? -2.5 : 2.5));
  context.strokeStyle = palette.ground;
  context.lineWidth = 3;
  context.stroke();
}

function hatch(context, left, top, width, height, colour, alpha) {
  if (height <= 0 || alpha <= 0) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.globalAlpha = alpha;
  context.lineWidth = 1.4;
  context.beginPath();
  for (let x = left - height; x < left + width; x += 6) {
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
}

// A name on the left and its bytes on the right, as far as they fit.
function label(context, name, bytes, left, top, width, height, ink) {
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = ink;
  const y = top + height / 2 + 0.5;
  const room = width - 8 - context.measureText(bytes).width;
  context.textAlign = "right";
  context.fillText(bytes, left + width - 3, y);
  context.textAlign = "left";
  let letters = Math.floor((name.length * Math.max(0, room - 8)) / Math.max(1, context.measureText(name).width));
  while (letters > 3 && context.measureText(shortened(name, letters)).width > room - 6) letters -= 1;
  if (letters > 3 || letters >= name.length) context.fillText(shortened(name, letters), left + 3, y);
}
