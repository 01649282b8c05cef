// The tools. Each hears of places in the image: x and y of a pixel, and the exact place as `at`.

import { capsule, flood, polygon, union } from "./raster.js";

/** Brush (value 1) or eraser (value 0): discs along the way. */
export function brush(editor, value) {
  let last = null;
  let changed = null;
  const to = (place) => {
    const rect = capsule(editor.mask, editor.width, editor.height, last.x, last.y, place.x, place.y, editor.radius, value);
    last = place;
    changed = union(changed, rect);
    if (rect) editor.view.paint(rect);
  };
  return {
    round: true,
    draws: true,
    down(place) {
      editor.begin();
      last = place;
      changed = null;
      to(place);
    },
    move(place) {
      if (last) to(place);
    },
    up() {
      if (!last) return;
      last = null;
      editor.commit(changed);
    },
    cancel() {
      if (!last) return;
      last = null;
      editor.revert();
    },
    leave() {
      this.up(); // what is drawn stays with the image that it was drawn on
    },
    get busy() {
      return last !== null;
    },
  };
}

/** Fill: what is joined to a place and has its value becomes mask, or is taken away. */
export function filler(editor) {
  return {
    draws: true,
    down({ x, y }) {
      if (x < 0 || y < 0 || x >= editor.width || y >= editor.height) return;
      editor.begin();
      editor.commit(flood(editor.mask, editor.width, editor.height, x, y, editor.adding ? 1 : 0));
    },
  };
}

/** Polygon: a click a corner; the first corner again, Enter or a double click closes it. */
export function lasso(editor) {
  let corners = [];
  let rubber = null;
  const snap = ([x, y]) => [
    Math.min(editor.width, Math.max(0, Math.round(x))),
    Math.min(editor.height, Math.max(0, Math.round(y))),
  ];
  const near = (one, other, slack) => Math.hypot(one[0] - other[0], one[1] - other[1]) * editor.view.scale <= slack;
  const end = () => {
    corners = [];
    rubber = null;
    editor.view.draw();
  };
  return {
    draws: true,
    down({ at }) {
      const corner = snap(at);
      if (corners.length >= 3 && near(corner, corners[0], editor.slack)) {
        this.finish();
        return;
      }
      if (corners.length && near(corner, corners.at(-1), 4)) {
        if (corners.length >= 3) this.finish();
        return;
      }
      corners.push(corner);
      editor.view.draw();
    },
    hover({ at }) {
      rubber = corners.length ? snap(at) : null;
      if (rubber) editor.view.draw();
    },
    finish() {
      if (corners.length >= 3) {
        editor.begin();
        editor.commit(polygon(editor.mask, editor.width, editor.height, corners, editor.adding ? 1 : 0));
      }
      end();
    },
    back() {
      corners.pop();
      editor.view.draw();
    },
    cancel() {},
    leave: end,
    get open() {
      return corners.length > 0;
    },
    marks(context) {
      if (!corners.length) return;
      const points = [...corners, ...(rubber ? [rubber] : [])].map(([x, y]) => editor.view.toScreen(x, y));
      trace(context, () => {
        points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
      });
      for (const [x, y] of corners.map((corner) => editor.view.toScreen(...corner))) dot(context, x, y, "#ffffff");
    },
  };
}

/** A box around the object; a click without a drag is a point inside it (with Shift or the other button: outside). */
export function boxer(editor) {
  let from = null;
  let to = null;
  return {
    down(place) {
      from = to = place;
    },
    move(place) {
      to = place;
      editor.view.draw();
    },
    up(place, event) {
      if (!from) return;
      const apart = Math.max(Math.abs(place.at[0] - from.at[0]), Math.abs(place.at[1] - from.at[1]));
      const corner = from;
      from = null;
      if (apart * editor.view.scale > 5) editor.guide.setBox(corner.at, place.at);
      else editor.guide.addPoint(place, !(event.shiftKey || event.button === 2));
    },
    cancel() {
      from = null;
      editor.view.draw();
    },
    leave() {
      this.cancel();
    },
    get busy() {
      return from !== null;
    },
    marks(context) {
      if (!from) return;
      const [left, top] = editor.view.toScreen(...from.at);
      const [right, bottom] = editor.view.toScreen(...to.at);
      trace(context, () => context.rect(left, top, right - left, bottom - top));
    },
  };
}

/** A point inside or outside the object; with Shift or the other button, the opposite. */
export function pointer(editor, inside) {
  return {
    down(place, event) {
      editor.guide.addPoint(place, inside !== (event.shiftKey || event.button === 2));
    },
  };
}

/** The hand: moves the image. */
export function hand() {
  return { pans: true };
}

/** A line that is seen on any image: dark below, light above. */
export function trace(context, path) {
  context.setLineDash([]);
  for (const [colour, width] of [["rgb(0 0 0 / 65%)", 4], ["#ffffff", 1.5]]) {
    context.beginPath();
    path();
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
  }
}

/** A dot with a dark rim, and a sign in it. */
export function dot(context, x, y, colour, sign = "") {
  context.beginPath();
  context.arc(x, y, sign ? 8 : 4.5, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
  context.strokeStyle = "#000000";
  context.lineWidth = 1.5;
  context.stroke();
  if (!sign) return;
  context.fillStyle = "#000000";
  context.font = "bold 13px sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(sign, x, y + 0.5);
}
