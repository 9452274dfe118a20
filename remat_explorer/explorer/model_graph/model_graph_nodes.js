// Folded blocks in the picture of the model: one box on each rail for all copies.

// A folded block is a pile of boxes, with how many they are.
function drawNode(context, data, scale, palette, node, number) {
  const [x, y, width, height] = scale.box(node);
  const count = `× ${data.blocks[number][1]}`;
  context.strokeStyle = data.rail[node] ? palette.backward : palette.forward;
  context.lineWidth = 1;
  for (const by of [0, 3, 6]) if (width > 3 * by && height > 3 * by) context.strokeRect(x + by / 2, y + by / 2, width - by, height - by);
  context.fillStyle = palette.ink;
  context.font = "bold 12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (context.measureText(count).width < width - 8 && height > 14) context.fillText(count, x + width / 2, y + height / 2);
}

// Of a folded block: from the left the share of its operations that run, and as high as ever the share that is kept.
function drawStageOfNode(context, data, scale, palette, found, node, number) {
  const [x, y, width, height] = scale.box(node);
  const all = data.members.get(node).length;
  let from = x;
  for (const [count, colour] of [[found.first, data.rail[node] ? palette.backward : palette.forward], [found.again, palette.recompute]]) {
    if (count === 0) continue;
    const part = Math.max(2, (width * count) / all);
    context.fillStyle = colour;
    context.fillRect(from, y, Math.min(part, x + width - from), height);
    from += part;
  }
  if (from > x) outline(context, scale, node, palette.ink, 0.9);
  if (found.kept) {
    const part = Math.max(3, ((from > x ? height / 2 : height) * found.kept) / Math.max(found.written, 1));
    context.fillStyle = palette.kept;
    context.fillRect(x, data.rail[node] ? y : y + height - part, width, part);
  }
  drawNode(context, data, scale, palette, node, number);
}
