"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, cls, text) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const say = (e, text) => { if (e.textContent !== text) e.textContent = text; };
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const number = (n) => short.format(n);
  const percent = (x) => (x === 0 ? "0 %" : (100 * x).toFixed(x < 0.01 ? 2 : 1) + " %");
  const time = (ms) => ms < 1 ? "0" : ms < 1000 ? Math.round(ms) + " ms" : ms < 90000 ? (ms / 1000).toFixed(1) + " s" : Math.round(ms / 60000) + " min";
  const period = (s) => s === 1 ? "a second" : s === 60 ? "a minute" : s === 3600 ? "an hour" : s === 86400 ? "a day" : "in " + time(1000 * s);
  const words = { green: "healthy", amber: "some refused", red: "refused" };
  const rank = { red: 0, amber: 1, green: 2 };
  const cards = new Map();
  const histories = new Map();
  let latest = null, seen = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The share of the sends that was refused, in slots of ten seconds over the last fifteen minutes.
  function spark(at) {
    return new uPlot({
      width: Math.max(at.clientWidth, 60), height: 44, cursor: { show: false }, legend: { show: false }, padding: [2, 0, 2, 0],
      axes: [{ show: false }, { show: false }],
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high, 0.02)] } },
      series: [{}, { stroke: () => colour("--red"), fill: () => colour("--red") + "33", width: 1.5, points: { show: false }, spanGaps: true }],
    }, [[], []], at);
  }

  function card(name) {
    const c = { root: make("article"), levels: [], facts: {} };
    c.root.tabIndex = 0;
    const top = make("div", "top");
    c.name = make("h2", "", name);
    c.health = make("span", "health");
    top.append(c.name, c.health);
    c.hold = make("p", "hold");
    c.levelBox = make("div");
    const facts = make("dl");
    for (const [id, label] of [["sends", "sent"], ["refused", "refused"], ["failed", "failed"], ["queued", "waiting"], ["in_flight", "in flight"], ["wait", "wait, p50 / p99"]]) {
      const box = make("div");
      c.facts[id] = make("dd");
      box.append(make("dt", "", label), c.facts[id]);
      facts.append(box);
    }
    c.spark = make("div", "spark");
    c.spark.setAttribute("role", "img");
    c.caption = make("p", "caption");
    c.shares = make("span");
    c.caption.append(make("span", "", "refused, last 15 minutes"), c.shares);
    c.root.append(top, c.hold, c.levelBox, facts, c.spark, c.caption);
    return c;
  }

  function fill(c, k) {
    c.key = k;
    c.root.className = k.health;
    say(c.health, k.health + ": " + words[k.health]);
    c.held = k.held > 0 ? performance.now() + k.held : 0;
    countDown(c);
    while (c.levels.length < (k.levels || []).length) {
      const row = make("div", "level"), l = { label: make("span"), meter: make("meter"), value: make("b") };
      row.append(l.label, l.meter, l.value);
      c.levelBox.append(row);
      c.levels.push(l);
      l.row = row;
    }
    c.levels.forEach((l, i) => {
      const v = (k.levels || [])[i];
      l.row.hidden = !v;
      if (!v) return;
      say(l.label, v.unit.replace("_", " "));
      l.meter.max = v.capacity; l.meter.low = v.capacity * 0.1; l.meter.high = v.capacity * 0.25; l.meter.optimum = v.capacity;
      l.meter.value = Math.max(v.available, 0);
      l.meter.setAttribute("aria-label", v.unit + " left");
      l.row.title = v.unit + " " + period(v.per);
      say(l.value, (v.available < 0 ? "−" + number(-v.available) : number(v.available)) + " of " + number(v.capacity));
    });
    const refused = Object.values(k.refused || {}).reduce((a, b) => a + b, 0);
    const f = c.facts;
    say(f.sends, number(k.sends)); say(f.refused, number(refused)); say(f.failed, number(k.failed));
    say(f.queued, number(k.queued)); say(f.in_flight, number(k.in_flight)); say(f.wait, time(k.wait50) + " / " + time(k.wait99));
    f.refused.title = Object.entries(k.refused || {}).map(([a, b]) => a + ": " + b).join(", ");
    say(c.shares, percent(k.wasted1) + " / " + percent(k.wasted5) + " / " + percent(k.wasted15));
    c.shares.title = "over 1, 5 and 15 minutes";
    c.spark.setAttribute("aria-label", "refused share: " + percent(k.wasted15) + " over 15 minutes");
    if (k.history) histories.set(k.name, k.history);
    if (k.history && c.root.isConnected) draw(c);
  }

  function draw(c) {
    const h = histories.get(c.key.name);
    if (!h) return;
    if (!c.plot) c.plot = spark(c.spark);
    c.plot.setData([h.map((_, i) => i), h.map(([sent, refused]) => (sent ? Math.min(1, refused / sent) : 0))]);
  }

  function countDown(c) {
    const left = c.held - performance.now();
    c.hold.hidden = !(c.held && left > 0);
    if (!c.hold.hidden) say(c.hold, "held for " + (left / 1000).toFixed(1) + " s");
  }

  function routes(list) {
    const box = $("routes");
    box.hidden = !list || list.length === 0;
    if (box.hidden) return;
    while (box.children.length > list.length) box.lastChild.remove();
    list.forEach((r, i) => {
      let e = box.children[i];
      if (!e) { e = make("div", "route"); e.append(make("b"), document.createTextNode(" "), make("span")); box.append(e); }
      e.className = "route " + r.state;
      say(e.children[0], r.name || "primary");
      say(e.children[1], "breaker " + r.state + (r.rest > 0 ? ", rests for " + time(r.rest) : "") + (r.openings ? ", opened " + r.openings + " times, last for " + r.why.replace("_", " ") : ""));
    });
  }

  function show() {
    if (!latest) return;
    const by = $("sort").value, find = $("find").value.trim().toLowerCase();
    const keys = latest.keys.filter((k) => k.name.toLowerCase().includes(find));
    keys.sort((a, b) => (by === "health" ? rank[a.health] - rank[b.health] : by === "name" ? 0 : b[by] - a[by]) || a.name.localeCompare(b.name));
    const box = $("keys"), wanted = new Set();
    keys.forEach((k, i) => {
      let c = cards.get(k.name);
      if (!c) { c = card(k.name); cards.set(k.name, c); }
      wanted.add(c.root);
      if (box.children[i] !== c.root && !c.root.contains(document.activeElement)) box.insertBefore(c.root, box.children[i] || null);
      else if (!c.root.isConnected) box.append(c.root);
      fill(c, k);
      if (!c.plot) draw(c);
    });
    for (const e of [...box.children]) if (!wanted.has(e)) e.remove();
    const names = new Set(latest.keys.map((k) => k.name));
    for (const name of cards.keys()) if (!names.has(name)) { cards.delete(name); histories.delete(name); }
    $("none").hidden = latest.keys.length > 0;
    const count = (h) => latest.keys.filter((k) => k.health === h).length;
    say($("summary"), latest.keys.length + (latest.keys.length === 1 ? " key: " : " keys: ") + ["red", "amber", "green"].map((h) => count(h) + " " + h).join(", "));
    document.title = (count("red") ? "red" : count("amber") ? "amber" : "green") + " · metered";
    routes(latest.routes);
  }

  function listen() {
    const source = new EventSource("events");
    source.onmessage = (e) => { latest = JSON.parse(e.data); seen++; document.body.dataset.seen = seen; $("link").className = "live"; say($("link"), "live"); show(); };
    source.onerror = () => {
      $("link").className = ""; say($("link"), "reconnecting");
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); // a 503 ends it for good
    };
  }

  $("sort").addEventListener("change", show);
  $("find").addEventListener("input", show);
  addEventListener("resize", () => { for (const c of cards.values()) if (c.plot) c.plot.setSize({ width: Math.max(c.spark.clientWidth, 60), height: 44 }); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const c of cards.values()) if (c.plot) c.plot.redraw(); });
  setInterval(() => { for (const c of cards.values()) countDown(c); }, 100);
  listen();
})();
