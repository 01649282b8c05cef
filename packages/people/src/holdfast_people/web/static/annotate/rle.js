// Masks as COCO's compressed run lengths: runs down the columns, background first, five bits a character.

/** Compressed run lengths of a mask (one byte a pixel, row after row). */
export function encode(mask, width, height) {
  const counts = [];
  let value = 0;
  let run = 0;
  for (let x = 0; x < width; x++) {
    for (let place = x; place < mask.length; place += width) {
      if (mask[place] === value) {
        run++;
      } else {
        counts.push(run);
        value ^= 1;
        run = 1;
      }
    }
  }
  counts.push(run);
  return compress(counts);
}

/** The mask of compressed run lengths, one byte a pixel; throws where they do not fill the size. */
export function decode(text, width, height) {
  const mask = new Uint8Array(width * height);
  let position = 0;
  uncompress(text).forEach((run, index) => {
    const end = position + run;
    if (run < 0 || end > mask.length) throw new Error("run lengths that do not fit");
    if (index % 2) {
      let x = Math.floor(position / height);
      let y = position % height;
      for (; position < end; position++) {
        mask[y * width + x] = 1;
        if (++y === height) {
          y = 0;
          x++;
        }
      }
    }
    position = end;
  });
  if (position !== mask.length) throw new Error("run lengths that do not fit");
  return mask;
}

function compress(counts) {
  const codes = [];
  const parts = [];
  counts.forEach((count, index) => {
    let value = index > 2 ? count - counts[index - 2] : count;
    for (;;) {
      let bits = value & 0x1f;
      value >>= 5;
      const more = bits & 0x10 ? value !== -1 : value !== 0;
      if (more) bits |= 0x20;
      codes.push(bits + 48);
      if (!more) break;
    }
    if (codes.length > 4096) parts.push(String.fromCharCode(...codes.splice(0)));
  });
  return parts.join("") + String.fromCharCode(...codes);
}

function uncompress(text) {
  const counts = [];
  let value = 0;
  let shift = 0;
  for (let index = 0; index < text.length; index++) {
    const bits = text.charCodeAt(index) - 48;
    value |= (bits & 0x1f) << shift;
    shift += 5;
    if (bits & 0x20) continue;
    if (bits & 0x10 && shift < 32) value |= -1 << shift;
    counts.push(counts.length > 2 ? value + counts[counts.length - 2] : value);
    value = 0;
    shift = 0;
  }
  return counts;
}
