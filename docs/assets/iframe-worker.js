// Browsers refuse workers to pages that are opened from disk. There a hidden frame does the worker's part, so that the search
// works without a server. Material's offline plugin knows such a stand-in by this file's name, and else links to one on the web.
if (location.protocol === "file:") {
  const load = (inside, url) =>
    new Promise((done, failed) => {
      const script = inside.document.createElement("script")
      Object.assign(script, { src: url, onload: done, onerror: failed })
      inside.document.body.append(script)
    })
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.document.open()
      this.inside.document.write("<!doctype html><body></body>")
      this.inside.document.close()
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(this.inside, next)), Promise.resolve())
      this.ready = load(this.inside, url)
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
