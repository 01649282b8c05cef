// Mouse, pen, fingers and arrow keys, turned into places for the tool at hand.

/**
 * One finger, the pen or the mouse's main button uses the tool; two fingers, the space bar, the middle button and the
 * wheel move the view. `editor.tool` hears down, move, up, cancel and hover.
 */
export class Input {
  isSpaceHeld = false;
  cursor = null; // the pixel that arrow keys move, once they were used
  #editor;
  #canvas;
  #pointers = new Map();
  #using = null; // the pointer that has the tool
  #panning = null;
  #tapping = null; // a finger with a tool of single clicks: a tap when it is lifted, unless a second finger comes
  #penDown = false;

  constructor(editor, canvas) {
    this.#editor = editor;
    this.#canvas = canvas;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#lost(event));
    canvas.addEventListener("pointerleave", () => editor.hover(null));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  place(event) {
    const at = this.#editor.view.toImage(event.clientX, event.clientY);
    return { x: Math.floor(at[0]), y: Math.floor(at[1]), at };
  }

  #down(event) {
    if (!this.#editor.isReady) return;
    this.#canvas.focus({ preventScroll: true });
    this.#pointers.set(event.pointerId, event);
    try {
      this.#canvas.setPointerCapture(event.pointerId);
    } catch {
      // the pointer is gone already
    }
    this.cursor = null;
    const { tool } = this.#editor;
    if (this.#pointers.size === 2 && event.pointerType === "touch") {
      this.#stop(); // what the first finger began was the beginning of a pinch
      return;
    }
    if (this.#pointers.size > 1) return;
    if (this.isSpaceHeld || event.button === 1 || tool.pans) {
      this.#panning = event;
      return;
    }
    if (event.button !== 0 && event.button !== 2) return;
    if (event.button === 2 && tool.draws) return;
    if (event.pointerType === "touch" && !tool.up) {
      this.#tapping = event.pointerId;
      return;
    }
    this.#using = event.pointerId;
    this.#editor.press(this.place(event), event);
  }

  #move(event) {
    const known = this.#pointers.get(event.pointerId);
    if (event.pointerType !== "touch" || known) this.#editor.hover(this.place(event));
    if (!known) return;
    if (this.#pointers.size === 2 && event.pointerType === "touch") {
      this.#pinch(event);
    } else if (this.#panning) {
      this.#editor.view.pan(event.clientX - known.clientX, event.clientY - known.clientY);
    } else if (this.#using === event.pointerId) {
      const all = event.getCoalescedEvents?.() ?? [];
      for (const one of all.length ? all : [event]) this.#editor.tool.move?.(this.place(one), event);
    }
    this.#pointers.set(event.pointerId, event);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    if (this.#using === event.pointerId) {
      this.#using = null;
      this.#editor.tool.up?.(this.place(event), event);
    }
    if (this.#tapping === event.pointerId) {
      this.#tapping = null;
      this.#editor.press(this.place(event), event);
    }
    if (!this.#pointers.size) this.#panning = null;
    if (event.pointerType === "touch") this.#editor.hover(null);
  }

  #lost(event) {
    this.#pointers.delete(event.pointerId);
    if (this.#using === event.pointerId || this.#tapping === event.pointerId) this.#stop();
    this.#panning = null;
  }

  #stop() {
    if (this.#using !== null) this.#editor.tool.cancel?.();
    this.#using = this.#tapping = null;
    this.#editor.hover(null);
  }

  #pinch(event) {
    const before = [...this.#pointers.values()];
    const after = before.map((one) => (one.pointerId === event.pointerId ? event : one));
    const apart = ([one, other]) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
    const middle = ([one, other]) => [(one.clientX + other.clientX) / 2, (one.clientY + other.clientY) / 2];
    const [oldX, oldY] = middle(before);
    const [newX, newY] = middle(after);
    const box = this.#canvas.getBoundingClientRect();
    this.#editor.view.pan(newX - oldX, newY - oldY);
    this.#editor.view.zoom(apart(after) / apart(before), newX - box.left, newY - box.top);
  }

  #wheel(event) {
    event.preventDefault();
    const box = this.#canvas.getBoundingClientRect();
    const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const by = Math.min(200, Math.max(-200, event.deltaY * lines)) * (event.ctrlKey ? 0.01 : 0.002);
    this.#editor.view.zoom(Math.exp(-by), event.clientX - box.left, event.clientY - box.top);
  }

  /** Move the cursor that stands in for a mouse; the brush draws while it is down. */
  step(across, down) {
    const { view, width, height, tool } = this.#editor;
    if (!this.cursor) {
      const box = this.#canvas.getBoundingClientRect();
      const [x, y] = view.toImage(box.left + box.width / 2, box.top + box.height / 2);
      this.cursor = { x: Math.floor(x), y: Math.floor(y) };
    }
    const x = Math.min(width - 1, Math.max(0, this.cursor.x + across));
    const y = Math.min(height - 1, Math.max(0, this.cursor.y + down));
    this.cursor = { x, y, at: [x + 0.5, y + 0.5] };
    view.reveal(x, y);
    this.#editor.hover(this.cursor);
    if (this.#penDown) tool.move?.(this.cursor);
  }

  /** What a click would do, at the cursor; brushes and boxes begin with one press and end with the next. */
  act(event) {
    if (!this.cursor) this.step(0, 0);
    const { tool } = this.#editor;
    const made = { button: 0, shiftKey: event.shiftKey };
    if (this.#penDown) {
      this.#penDown = false;
      tool.up?.(this.cursor, made);
      return;
    }
    this.#editor.press(this.cursor, made);
    this.#penDown = Boolean(tool.busy);
    this.#editor.say(this.#penDown ? "Down: arrow keys draw, Enter lifts." : "");
  }

  /** Let go of whatever was begun with keys. */
  lift() {
    if (this.#penDown) this.#editor.tool.cancel?.();
    this.#penDown = false;
  }
}
