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

  // How figures are said.
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const number = (n) => (n < 0 ? "−" : "") + short.format(Math.abs(n));
  const left = (n) => number(Math.abs(n) >= 10 ? Math.floor(n) : Math.floor(n * 10) / 10);
  const percent = (x) => (x === 0 ? "0" : (100 * x).toFixed(x < 0.01 ? 2 : x < 0.1 ? 1 : 0)) + " %";
  const wait = (ms) => ms < 1 ? "0" : ms < 1000 ? Math.round(ms) + " ms" : ms < 10000 ? (ms / 1000).toFixed(1) + " s" : span(ms);
  const span = (ms) => {
    const s = Math.round(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    return d ? d + " d " + (h % 24) + " h" : h ? h + " h " + (m % 60) + " min" : m ? m + " min " + (s % 60) + " s" : s + " s";
  };
  const countdown = (ms) => ms < 60000 ? (ms / 1000).toFixed(1) + " s" : span(ms);
  const periods = { 1: "s", 60: "min", 3600: "h", 86400: "day" };
  const limit = (l) => l.unit.replace("_", " ") + (l.per > 0 ? " / " + (periods[l.per] || span(1000 * l.per)) : "");
  const plural = (n, one, many) => n.toLocaleString("en") + " " + (n === 1 ? one : many);

  const words = { green: "✓ green: healthy", amber: "! amber: some refused", red: "✕ red: refused" };
  const rank = { red: 0, amber: 1, green: 2 };
  const facts = [["queued", "waiting"], ["in_flight", "in flight"], ["wait50", "wait p50"], ["wait99", "wait p99"],
    ["sends", "sent"], ["refused", "refused"], ["foreign", "by others"], ["failed", "failed"]];

  const cards = new Map(), histories = new Map();
  let latest = null, seen = 0, heard = 0;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The share of the sends that was refused, a bar for each ten seconds; and where anything was sent, a trace.
  function spark(at) {
    const bars = uPlot.paths.bars({ size: [0.8, 12] });
    const line = (scale, name) => ({ scale, stroke: () => colour(name), fill: () => colour(name), width: 0, points: { show: false }, paths: bars });
    return new uPlot({
      width: at.clientWidth, height: 40, padding: [1, 0, 0, 0], cursor: { show: false }, legend: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: { x: { time: false, range: (u) => [-0.5, u.data[0].length - 0.5] }, y: { range: (_, low, high) => [0, Math.max(high, 0.01)] }, trace: { range: [0, 1] } },
      series: [{}, line("trace", "--trace"), line("y", "--red")],
    }, [[], [], []], at);
  }

  const resized = new ResizeObserver((all) => {
    for (const { target, contentRect } of all) {
      const c = cards.get(target.dataset.key);
      if (!c || contentRect.width < 1) continue;
      if (!c.plot) draw(c);
      else if (c.plot.width !== contentRect.width) c.plot.setSize({ width: contentRect.width, height: 40 });
    }
  });

  function card(name) {
    const c = { root: make("article"), levels: [], facts: {}, shares: [] };
    c.root.tabIndex = 0;
    c.health = make("span", "health");
    c.hold = make("span", "hold");
    c.free = make("span", "free", "not held");
    const state = make("p", "state");
    state.append(c.health, c.hold, c.free);
    c.levelBox = make("div", "levels");
    const list = make("dl");
    for (const [id, label] of facts) {
      const box = make("div");
      c.facts[id] = make("dd");
      c.facts[id].dataset.fact = id;
      box.append(make("dt", "", label), c.facts[id]);
      list.append(box);
    }
    const shares = make("p", "shares"), three = make("span");
    for (const minutes of [1, 5, 15]) {
      const one = make("span"), b = make("b");
      one.append(minutes + " min ", b);
      three.append(one);
      c.shares.push(b);
    }
    shares.append("refused", three);
    c.spark = make("div", "spark");
    c.spark.dataset.key = name;
    c.spark.setAttribute("role", "img");
    const axis = make("p", "axis");
    c.peak = make("span");
    axis.append(make("span", "", "15 min ago"), c.peak, make("span", "", "now"));
    c.root.append(make("h2", "", name || "(no name)"), state, c.levelBox, list, shares, c.spark, axis);
    resized.observe(c.spark);
    return c;
  }

  function fill(c, k) {
    c.key = k;
    if (c.root.className !== k.health) c.root.className = k.health;
    say(c.health, words[k.health]);
    c.root.setAttribute("aria-label", k.name + ", " + k.health);
    c.until = k.held > 0 ? heard + k.held : 0;
    countDown(c);
    const levels = k.levels || [];
    while (c.levels.length < levels.length) {
      const l = { row: make("div"), label: make("span"), meter: make("meter"), value: make("b") };
      l.row.append(l.label, l.meter, l.value);
      c.levelBox.append(l.row);
      c.levels.push(l);
    }
    c.levels.forEach((l, i) => {
      const v = levels[i];
      l.row.hidden = !v;
      if (!v) return;
      l.row.className = v.available < 0 ? "level debt" : "level";
      say(l.label, limit(v));
      l.meter.max = v.capacity;
      l.meter.value = Math.max(v.available, 0);
      l.meter.setAttribute("aria-label", limit(v) + " left");
      say(l.value, left(v.available) + " of " + left(v.capacity));
    });
    const refused = Object.values(k.refused || {}).reduce((a, b) => a + b, 0);
    for (const [id] of facts) say(c.facts[id], id === "refused" ? number(refused) : id.startsWith("wait") ? wait(k[id]) : number(k[id] || 0));
    c.facts.foreign.title = "refusals because somebody else used the limit, as far as answers show it";
    c.facts.refused.title = Object.entries(k.refused || {}).map(([what, n]) => what.replace("_", " ") + ": " + n).join(", ");
    [k.wasted1, k.wasted5, k.wasted15].forEach((x, i) => say(c.shares[i], percent(x)));
    c.spark.setAttribute("aria-label", "refused share over 15 minutes: " + percent(k.wasted15));
    if (k.history) draw(c);
  }

  function draw(c) {
    const h = histories.get(c.key.name);
    if (!h || !c.spark.clientWidth) return;
    if (!c.plot) c.plot = spark(c.spark);
    const shares = h.map(([sent, refused]) => (refused ? Math.min(1, refused / Math.max(sent, 1)) : null));
    c.plot.setData([h.map((_, i) => i), h.map(([sent]) => (sent ? 0.06 : null)), shares]);
    say(c.peak, "peak " + percent(Math.max(0, ...shares)));
  }

  function countDown(c) {
    const rest = c.until ? c.until - performance.now() : 0;
    const held = rest >= 50;
    c.hold.hidden = !held;
    c.free.hidden = held;
    if (held) say(c.hold, "held for " + countdown(rest));
  }

  function routes(list) {
    const box = $("routes");
    box.hidden = list.length === 0;
    while (box.children.length > list.length) box.lastChild.remove();
    list.forEach((r, i) => {
      let e = box.children[i];
      if (!e) { e = make("div"); e.append(make("b"), make("span")); box.append(e); }
      e.className = "route " + r.state;
      say(e.children[0], r.name || "primary");
      say(e.children[1], "breaker " + r.state + (r.rest > 0 ? ", rests for " + span(r.rest) : "") +
        (r.openings ? "; opened " + plural(r.openings, "time", "times") + ", last: " + r.why.replace("_", " ") : ""));
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
      // To move what has the focus would take it away.
      if (!c.root.isConnected || (box.children[i] !== c.root && !c.root.contains(document.activeElement))) box.insertBefore(c.root, box.children[i] || null);
      fill(c, k);
    });
    for (const e of [...box.children]) if (!wanted.has(e)) e.remove();
    const names = new Set(latest.keys.map((k) => k.name));
    for (const [name, c] of cards) if (!names.has(name)) { resized.unobserve(c.spark); if (c.plot) c.plot.destroy(); cards.delete(name); histories.delete(name); }

    const more = latest.total - latest.keys.length;
    $("none").hidden = keys.length > 0 && more === 0;
    say($("none"), latest.total === 0 ? "No key has been used yet." : (keys.length === 0 ? "No key that is shown has this in its name. " : "") +
      (more > 0 ? plural(more, "key", "keys") + " in better health are not shown." : ""));
    const count = (h) => latest.health[h] || 0;
    say($("summary"), plural(latest.total, "key", "keys") + ": " + ["red", "amber", "green"].map((h) => count(h) + " " + h).join(", "));
    document.title = (count("red") ? "red" : count("amber") ? "amber" : "green") + " · metered";
    routes(latest.routes || []);
  }

  function linked(live) {
    $("link").className = live ? "live" : "";
    say($("link"), live ? "live" : "reconnecting");
    document.body.classList.toggle("stale", !live);
    if (live) say($("age"), "");
  }

  function listen() {
    const source = new EventSource("events");
    source.onmessage = (e) => {
      latest = JSON.parse(e.data);
      heard = performance.now();
      for (const k of latest.keys) if (k.history) histories.set(k.name, k.history);
      document.body.dataset.seen = ++seen;
      linked(true);
      show();
    };
    source.onerror = () => {
      linked(false);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); // an answer that is no stream, a 503 say, ends it for good
    };
  }

  $("sort").addEventListener("change", show);
  $("find").addEventListener("input", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const c of cards.values()) if (c.plot) c.plot.redraw(); });
  setInterval(() => { for (const c of cards.values()) countDown(c); }, 100);
  setInterval(() => { if (heard && document.body.className === "stale") say($("age"), "· figures are " + span(performance.now() - heard) + " old"); }, 1000);
  listen();
})();
