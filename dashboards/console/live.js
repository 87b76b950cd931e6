// The picture of the cluster, live: server-sent events, and what they change.
//
// The node sends all of it once, then what has changed (runtime/console/changes.py says what a
// change means). Sections that are objects become Maps, so that no name of a user is a property.

const SAMPLES_MAX = 300;
const AGAIN_MS = 3000;

export class Live {
  /** `shown(changed)` is told after every picture; changed: section -> Set of keys, or null: all.
   * `refused()`: the node answers with something else, perhaps because a login has ended. */
  constructor(shown, linked, refused) {
    this.sections = {};
    this.samples = new Map();
    this.heardAt = 0;
    this.number = -1;
    this.shown = shown;
    this.linked = linked;
    this.refused = refused;
    this.source = null;
    this.again = 0;
    document.addEventListener("visibilitychange", () => this.look());
    window.addEventListener("pagehide", () => this.stop());
    window.addEventListener("pageshow", () => this.look());
  }

  /** Nobody looks at a hidden page: then the node has no work with it. */
  look() {
    if (document.hidden) this.stop();
    else if (this.source === null) this.start();
  }

  start() {
    this.stop();
    const source = new EventSource("events");
    this.source = source;
    source.addEventListener("all", (event) => this.all(JSON.parse(event.data)));
    source.addEventListener("change", (event) => this.change(JSON.parse(event.data)));
    source.addEventListener("bye", () => this.linked("this node is stopping", false));
    source.onerror = () => {
      this.linked("connection lost, trying again", false);
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.stop();
        this.refused();
        this.again = setTimeout(() => this.look(), AGAIN_MS);
      }
    };
  }

  stop() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
  }

  all(told) {
    this.sections = {};
    for (const [name, value] of Object.entries(told.all)) this.sections[name] = section(value);
    this.samples = new Map();
    this.heard(told, null);
  }

  change(told) {
    if (told.number !== this.number + 1) {
      this.start(); // something was missed: begin anew
      return;
    }
    const changed = {};
    for (const [name, one] of Object.entries(told.change)) changed[name] = this.apply(name, one);
    this.heard(told, changed);
  }

  apply(name, one) {
    if ("=" in one) {
      this.sections[name] = section(one["="]);
      return null;
    }
    const keys = new Set();
    for (const [key, value] of Object.entries(one["+"])) {
      this.sections[name].set(key, value);
      keys.add(key);
    }
    for (const key of one["-"] ?? []) {
      this.sections[name].delete(key);
      keys.add(key);
    }
    return keys;
  }

  heard(told, changed) {
    this.number = told.number;
    this.heardAt = performance.now();
    for (const [node, rows] of Object.entries(told.samples ?? {})) {
      const known = this.samples.get(node) ?? [];
      known.push(...rows);
      this.samples.set(node, known.slice(-SAMPLES_MAX));
    }
    this.linked("live", true);
    this.shown(changed);
  }
}

function section(value) {
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  return isObject ? new Map(Object.entries(value)) : value;
}
