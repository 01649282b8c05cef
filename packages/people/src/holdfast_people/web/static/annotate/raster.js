// Drawing into a mask: one byte a pixel, row after row. No canvas has a hand in it, so that every browser, and a test
// in another language, gets the same pixels. Every function returns the rectangle it may have changed, or null.

/** Pixels within a disc's reach of the segment from one pixel to another: squared distance at most r² + r. */
export function capsule(mask, width, height, x0, y0, x1, y1, radius, value) {
  const reach = radius * radius + radius;
  const across = x1 - x0;
  const down = y1 - y0;
  const length = across * across + down * down;
  const rect = clip(
    { left: Math.min(x0, x1) - radius, top: Math.min(y0, y1) - radius, right: Math.max(x0, x1) + radius + 1, bottom: Math.max(y0, y1) + radius + 1 },
    width,
    height,
  );
  if (!rect) return null;
  for (let y = rect.top; y < rect.bottom; y++) {
    for (let x = rect.left; x < rect.right; x++) {
      const dx = x - x0;
      const dy = y - y0;
      const along = dx * across + dy * down;
      let near;
      if (along <= 0) near = dx * dx + dy * dy <= reach;
      else if (along >= length) near = (x - x1) ** 2 + (y - y1) ** 2 <= reach;
      else near = (dx * down - dy * across) ** 2 <= reach * length;
      if (near) mask[y * width + x] = value;
    }
  }
  return rect;
}

/** Pixels whose middle lies inside a polygon (even-odd); corners are corners of pixels, as whole numbers. */
export function polygon(mask, width, height, corners, value) {
  const xs = corners.map((corner) => corner[0]);
  const ys = corners.map((corner) => corner[1]);
  const rect = clip({ left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) }, width, height);
  if (!rect) return null;
  for (let y = rect.top; y < rect.bottom; y++) {
    const middle = y + 0.5;
    const crossings = [];
    for (let index = 0; index < corners.length; index++) {
      const [ax, ay] = corners[index];
      const [bx, by] = corners[(index + 1) % corners.length];
      if (ay < middle !== by < middle) crossings.push(ax + ((middle - ay) * (bx - ax)) / (by - ay));
    }
    crossings.sort((one, other) => one - other);
    for (let pair = 0; pair + 1 < crossings.length; pair += 2) {
      const from = Math.max(0, Math.ceil(crossings[pair] - 0.5));
      const to = Math.min(width, Math.ceil(crossings[pair + 1] - 0.5));
      if (to > from) mask.fill(value, y * width + from, y * width + to);
    }
  }
  return rect;
}

/** Give a pixel, and all that are joined to it by sides and have its value, another value. */
export function flood(mask, width, height, x, y, value) {
  const old = mask[y * width + x];
  if (old === value) return null;
  const rect = { left: x, top: y, right: x + 1, bottom: y + 1 };
  const waiting = [[x, y]];
  while (waiting.length) {
    const [startX, row] = waiting.pop();
    const base = row * width;
    if (mask[base + startX] !== old) continue;
    let left = startX;
    let right = startX;
    while (left > 0 && mask[base + left - 1] === old) left--;
    while (right + 1 < width && mask[base + right + 1] === old) right++;
    mask.fill(value, base + left, base + right + 1);
    rect.left = Math.min(rect.left, left);
    rect.right = Math.max(rect.right, right + 1);
    rect.top = Math.min(rect.top, row);
    rect.bottom = Math.max(rect.bottom, row + 1);
    for (const next of [row - 1, row + 1]) {
      if (next < 0 || next >= height) continue;
      for (let at = left, begun = false; at <= right; at++) {
        const open = mask[next * width + at] === old;
        if (open && !begun) waiting.push([at, next]);
        begun = open;
      }
    }
  }
  return rect;
}

/** Grow (value 1) or shrink (value 0) by one pixel up, down, left and right; the image's border does not eat in. */
export function spread(mask, width, height, value) {
  const before = mask.slice();
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const place = y * width + x;
      if (before[place] === value) continue;
      if (
        (x > 0 && before[place - 1] === value) ||
        (x + 1 < width && before[place + 1] === value) ||
        (y > 0 && before[place - width] === value) ||
        (y + 1 < height && before[place + width] === value)
      ) {
        mask[place] = value;
      }
    }
  }
  return whole(width, height);
}

/** The whole image as a rectangle. */
export function whole(width, height) {
  return { left: 0, top: 0, right: width, bottom: height };
}

/** The smallest rectangle around two, either of which may be null. */
export function union(one, other) {
  if (!one || !other) return one ?? other;
  return {
    left: Math.min(one.left, other.left),
    top: Math.min(one.top, other.top),
    right: Math.max(one.right, other.right),
    bottom: Math.max(one.bottom, other.bottom),
  };
}

/** The part of a rectangle that is in the image, or null. */
export function clip(rect, width, height) {
  const left = Math.max(0, rect.left);
  const top = Math.max(0, rect.top);
  const right = Math.min(width, rect.right);
  const bottom = Math.min(height, rect.bottom);
  return left < right && top < bottom ? { left, top, right, bottom } : null;
}
