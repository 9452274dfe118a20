// Cells to pixels: once for each change of the matrices, the zoom or the colours.

// The pixels from which to which each of `count` cells reaches.
function edges(count, pixels, least, gap) {
  const [from, to] = [new Int32Array(count), new Int32Array(count)];
  for (let i = 0; i < count; i++) {
    from[i] = Math.floor((i * pixels) / count);
    to[i] = Math.min(pixels, Math.max(from[i] + least, Math.floor(((i + 1) * pixels) / count) - gap));
  }
  return { from, to };
}

// The highest level under every device pixel: nothing thin disappears, and large cells keep sharp edges.
function raster(panel, part, width, height, ratio) {
  const { ids, cells, stride, mask } = panel;
  const rows = part.last - part.first + 1;
  const gap = ids.length * 9 < width && rows * 9 < height ? 1 : 0;
  const least = panel.sparse ? Math.round(2 * ratio) : 1;
  const [across, down] = [edges(ids.length, width, least, gap), edges(rows, height, least, gap)];
  const levels = new Uint16Array(width * height);
  for (let row = 0; row < rows; row++) {
    const start = (part.first + row) * stride;
    for (let column = 0; column < ids.length; column++) {
      const level = cells[start + ids[column]] & mask;
      if (level === 0) continue;
      for (let y = down.from[row]; y < down.to[row]; y++)
        for (let at = y * width + across.from[column]; at < y * width + across.to[column]; at++)
          if (level > levels[at]) levels[at] = level;
    }
  }
  return levels;
}

function paint(context, panel, part, palette, box, ratio) {
  const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (width < 1 || height < 1) return;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = panel.colours(palette);
  const known = new Uint32Array(65536); // the colours of the levels met so far; 0, which is transparent, is not yet
  const levels = raster(panel, part, width, height, ratio);
  for (let i = 0; i < levels.length; i++) {
    let colour = known[levels[i]];
    if (colour === 0) {
      const [r, g, b] = panel.colour(levels[i], colours);
      colour = known[levels[i]] = (255 << 24) | (b << 16) | (g << 8) | r;
    }
    pixels[i] = colour;
  }
  context.putImageData(image, Math.round(box.left * ratio), Math.round(box.top * ratio));
}
