// What is seen: the image, the mask over it, and the marks of the tool at hand; where, and how large.

const LARGEST = 64; // screen pixels a pixel
const MARGIN = 16;

export const COLOURS = { mask: [255, 0, 144], added: [30, 136, 255], removed: [255, 138, 0], both: [255, 0, 144] };

/** A pixel of ImageData as one number. */
export function word([red, green, blue], alpha) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export class View {
  scale = 1;
  left = 0; // of the image, in screen pixels from the canvas's left edge
  top = 0;
  opacity = 0.5;
  hidden = false;
  marks = () => {}; // draws what the tools show, in screen pixels
  #canvas;
  #image = null;
  #mask = null;
  #other = null;
  #overlay = document.createElement("canvas");
  #asked = false;
  #fitted = true;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  get width() {
    return this.#overlay.width;
  }

  get height() {
    return this.#overlay.height;
  }

  /** Show an image (or null) with a mask of its size. */
  show(image, mask, width, height) {
    this.#image = image;
    this.#mask = mask;
    this.#other = null;
    this.#overlay.width = width;
    this.#overlay.height = height;
    this.paint();
    this.fit();
  }

  /** Show a second mask against the first, or none. */
  compare(other) {
    this.#other = other;
    this.paint();
  }

  /** Bring the overlay up to date within a rectangle, or everywhere. */
  paint(rect = { left: 0, top: 0, right: this.width, bottom: this.height }) {
    const { width, height } = this;
    const left = Math.max(0, rect.left - 1);
    const top = Math.max(0, rect.top - 1);
    const right = Math.min(width, rect.right + 1);
    const bottom = Math.min(height, rect.bottom + 1);
    if (!this.#mask || left >= right || top >= bottom) return;
    const pixels = new ImageData(right - left, bottom - top);
    const words = new Uint32Array(pixels.data.buffer);
    const colours = this.#palette();
    const mask = this.#mask;
    const other = this.#other;
    for (let y = top, at = 0; y < bottom; y++) {
      for (let x = left; x < right; x++, at++) {
        const place = y * width + x;
        if (other) {
          words[at] = colours[mask[place] + 2 * other[place]];
        } else if (mask[place]) {
          const inner =
            (x === 0 || mask[place - 1]) && (x + 1 === width || mask[place + 1]) &&
            (y === 0 || mask[place - width]) && (y + 1 === height || mask[place + width]);
          words[at] = inner ? colours[1] : colours[4];
        }
      }
    }
    this.#overlay.getContext("2d").putImageData(pixels, left, top);
    this.draw();
  }

  #palette() {
    const alpha = Math.round(this.opacity * 255);
    if (!this.#other) return [0, word(COLOURS.mask, alpha), 0, 0, word(COLOURS.mask, 255)];
    const strong = Math.max(alpha, 150);
    return [0, word(COLOURS.added, strong), word(COLOURS.removed, strong), word(COLOURS.both, Math.round(alpha * 0.7))];
  }

  /** From a place on the screen to one in the image; whole numbers begin at the corners of pixels. */
  toImage(clientX, clientY) {
    const box = this.#canvas.getBoundingClientRect();
    return [(clientX - box.left - this.left) / this.scale, (clientY - box.top - this.top) / this.scale];
  }

  /** From a place in the image to one on the canvas, in screen pixels. */
  toScreen(x, y) {
    return [this.left + x * this.scale, this.top + y * this.scale];
  }

  fit() {
    const { clientWidth, clientHeight } = this.#canvas;
    if (!this.width || !clientWidth) return;
    this.scale = Math.min((clientWidth - 2 * MARGIN) / this.width, (clientHeight - 2 * MARGIN) / this.height, LARGEST);
    this.scale = Math.max(this.scale, 0.001);
    this.left = (clientWidth - this.width * this.scale) / 2;
    this.top = (clientHeight - this.height * this.scale) / 2;
    this.#fitted = true;
    this.draw();
  }

  /** Zoom by a factor around a place on the canvas; its middle if none is given. */
  zoom(factor, x = this.#canvas.clientWidth / 2, y = this.#canvas.clientHeight / 2) {
    const scale = Math.min(LARGEST, Math.max(this.scale * factor, 8 / Math.max(this.width, this.height)));
    this.left = x - ((x - this.left) * scale) / this.scale;
    this.top = y - ((y - this.top) * scale) / this.scale;
    this.scale = scale;
    this.#keep();
  }

  pan(across, down) {
    this.left += across;
    this.top += down;
    this.#keep();
  }

  /** Move as little as needed to have a pixel of the image in sight. */
  reveal(x, y) {
    const [across, down] = this.toScreen(x + 0.5, y + 0.5);
    const { clientWidth, clientHeight } = this.#canvas;
    const into = (place, most) => Math.min(Math.max(place, 24), most - 24) - place;
    this.pan(into(across, clientWidth), into(down, clientHeight));
  }

  /** A part of the image always stays in sight. */
  #keep() {
    const { clientWidth, clientHeight } = this.#canvas;
    const within = (place, size, most) => Math.min(Math.max(place, 40 - size), most - 40);
    this.left = within(this.left, this.width * this.scale, clientWidth);
    this.top = within(this.top, this.height * this.scale, clientHeight);
    this.#fitted = false;
    this.draw();
  }

  #resize() {
    const ratio = devicePixelRatio || 1;
    this.#canvas.width = Math.round(this.#canvas.clientWidth * ratio);
    this.#canvas.height = Math.round(this.#canvas.clientHeight * ratio);
    if (this.#fitted) this.fit();
    else this.draw();
  }

  /** Draw at the next frame. */
  draw() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#draw();
    });
  }

  #draw() {
    const ratio = devicePixelRatio || 1;
    const context = this.#canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    if (!this.#image) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.imageSmoothingEnabled = this.scale < 2;
    context.imageSmoothingQuality = "high";
    const place = [this.left, this.top, this.width * this.scale, this.height * this.scale];
    context.drawImage(this.#image, ...place);
    if (!this.hidden) context.drawImage(this.#overlay, ...place);
    context.imageSmoothingEnabled = true;
    this.marks(context);
  }
}
