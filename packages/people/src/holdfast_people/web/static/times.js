// <time datetime="…Z"> in the reader's own zone and manner.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function localise(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.valueOf())) element.textContent = format.format(at);
  }
}

localise();
