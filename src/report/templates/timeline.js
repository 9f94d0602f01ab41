"use strict";
// One timeline: the ledger's row above the lanes of streams and threads. Data are built by report/timeline.rs.
function timeline(box, d) {
  const canvas = box.querySelector("canvas"), info = box.querySelector(".info"), tip = document.getElementById("tip");
  const g = canvas.getContext("2d"), LEFT = 180, AXIS = 26, ROW = 22, LEDGER = 38;
  const colours = ["#1f5fbf", "#2a9d8f", "#8e5bb5", "#d9a321", "#3f88c5", "#7a9e3f", "#b8577b", "#5b6b8c", "#a06a42", "#4aa3a2"];
  const gaps = { gap: "#e4572e", head: "#f08a5d", tail: "#f08a5d", unknown: "#9aa0aa", memcpy: "#6c757d", memset: "#6c757d" };
  const rows = [{ title: "ledger", slices: d.segments, h: LEDGER, ledger: true }].concat(
    d.lanes.map(l => ({ title: l.title, slices: l.slices, h: ROW, thread: l.group === "thread" })));
  let y = AXIS;
  for (const r of rows) { r.y = y; y += r.h + (r.ledger ? 8 : 2); }
  const height = y + 6;
  let from = 0, to = d.window_ns, width = 0, pinned = null;
  const colour = (r, s) => {
    const kind = r.ledger ? s[4] : "";
    if (gaps[kind] && kind !== "") return gaps[kind];
    if (r.thread) return "#8a94a6";
    const group = d.group[s[2]];
    return group === null ? "#7d8899" : colours[group % colours.length];
  };
  const us = ns => (ns / 1000).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 }) + " µs";
  const x = ns => LEFT + (ns - from) / (to - from) * (width - LEFT);
  const first = (list, t) => { // the first slice that ends after t
    let a = 0, b = list.length;
    while (a < b) { const m = (a + b) >> 1; if (list[m][0] + list[m][1] <= t) a = m + 1; else b = m; }
    return a;
  };
  function draw() {
    const ratio = window.devicePixelRatio || 1;
    width = canvas.clientWidth || 1000;
    canvas.style.height = height + "px";
    canvas.width = width * ratio; canvas.height = height * ratio;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = "#fff"; g.fillRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif"; g.textBaseline = "middle";
    const raw = (to - from) / 8, unit = Math.pow(10, Math.floor(Math.log10(Math.max(raw, 1))));
    const step = [1, 2, 5, 10].map(k => k * unit).find(k => k >= raw) || unit;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const px = Math.round(x(t)) + .5;
      g.strokeStyle = "#eceff3"; g.beginPath(); g.moveTo(px, AXIS - 6); g.lineTo(px, height); g.stroke();
      g.fillStyle = "#667085"; g.textAlign = px < LEFT + 40 ? "left" : px > width - 50 ? "right" : "center";
      g.fillText((t / 1000).toLocaleString("en") + " µs", Math.min(px, width - 4), 10);
    }
    g.textAlign = "left";
    for (const r of rows) {
      g.fillStyle = "#f6f7f9"; g.fillRect(LEFT, r.y, width - LEFT, r.h);
      // Idle pieces come last and at least a pixel wide: a gap is never hidden by its neighbours.
      for (const idle of r.ledger ? [false, true] : [false]) {
        let last = -1;
        for (let i = first(r.slices, from); i < r.slices.length && r.slices[i][0] < to; i++) {
          const s = r.slices[i], a = Math.max(x(s[0]), LEFT), b = Math.min(x(s[0] + s[1]), width);
          if (r.ledger && (s[3] !== null) !== idle) continue;
          if (b <= last + .4 && b - a < .4) continue;
          last = b;
          const w = Math.max(b - a, idle ? 1 : .5);
          g.fillStyle = colour(r, s);
          g.fillRect(a, r.y, w > 3 ? w - .5 : w, r.h);
          if (r.ledger && s[4] === "overlap") { g.fillStyle = "rgba(255,255,255,.55)"; g.fillRect(a, r.y, w, 7); }
          if (w > 34) {
            g.save(); g.beginPath(); g.rect(a, r.y, w - 3, r.h); g.clip();
            g.fillStyle = "#fff"; g.fillText(d.names[s[2]], a + 5, r.y + r.h / 2 + (r.ledger ? 3 : 0)); g.restore();
          }
          if (pinned && pinned.s === s) { g.strokeStyle = "#000"; g.lineWidth = 2; g.strokeRect(a + 1, r.y + 1, Math.max(w - 2, 1), r.h - 2); g.lineWidth = 1; }
        }
      }
      g.fillStyle = "#fff"; g.fillRect(0, r.y, LEFT, r.h);
      g.fillStyle = r.ledger ? "#1b1f27" : "#667085";
      g.save(); g.beginPath(); g.rect(0, r.y, LEFT - 8, r.h); g.clip(); g.fillText(r.title, 12, r.y + r.h / 2); g.restore();
    }
  }
  function hit(e) {
    const b = canvas.getBoundingClientRect(), px = e.clientX - b.left, py = e.clientY - b.top;
    if (px < LEFT) return null;
    const r = rows.find(r => py >= r.y && py < r.y + r.h);
    if (!r) return null;
    const reach = (to - from) / (width - LEFT), t = from + (px - LEFT) * reach;
    const i = first(r.slices, t - reach * 2), near = [r.slices[i], r.slices[i + 1], r.slices[i + 2], r.slices[i + 3]]
      .filter(s => s && s[0] <= t + reach * 2);
    // A gap of a pixel must be reachable: it wins over the kernels beside it.
    const i0 = Math.max(first(r.slices, t - reach * 2) - 1, 0);
    const thin = r.ledger && r.slices.slice(i0, i0 + 12).find(
      s => s[3] !== null && s[1] < reach * 3 && Math.abs(s[0] + s[1] / 2 - t) < reach * 2.5);
    const s = thin || near.find(s => s[0] <= t && t < s[0] + s[1]) || near[0];
    return s ? { r, s } : null;
  }
  function line(text, bold) {
    const p = document.createElement(bold ? "b" : "div");
    p.textContent = text; info.appendChild(p);
  }
  function show(h) {
    info.textContent = "";
    if (!h) { line(d.hint); return; }
    const s = h.s, e = h.r.ledger && s[3] !== null ? d.evidence[s[3]] : null;
    line((e ? "Idle: " : "") + d.names[s[2]], true);
    line(s[1].toLocaleString("en") + " ns, from " + us(s[0]) + " to " + us(s[0] + s[1]) + " of the window");
    if (h.r.ledger && !e) line(s[4] === "overlap" ? "several operations at once" : s[4]);
    if (!e) return;
    if (s[4] !== "gap") line("at the window's " + s[4]);
    const [records, cause, why, below] = e, text = i => d.texts[i];
    if (below) line("shorter than the clock can tell apart");
    line("Evidence: " + (records.map(r => text(r[0]) + ": " + text(r[1]) + " (" + text(r[2]) + " #" + r[3] + ")").join("; ") || "no record"));
    line("Runner-up: " + text(cause) + "; it lost because " + why);
  }
  function view(a, b) {
    const span = Math.min(Math.max(b - a, 20), d.window_ns);
    from = Math.min(Math.max(a, 0), d.window_ns - span); to = from + span;
    draw();
  }
  const zoom = (at, k) => view(at - (at - from) * k, at + (to - at) * k);
  const at = e => from + (e.clientX - canvas.getBoundingClientRect().left - LEFT) / (width - LEFT) * (to - from);
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) view(from + e.deltaX * (to - from) / width, to + e.deltaX * (to - from) / width);
    else zoom(Math.max(from, at(e)), Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", e => { drag = { x: e.clientX, from, to, moved: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", e => {
    if (drag) {
      const by = (e.clientX - drag.x) / (width - LEFT) * (drag.to - drag.from);
      drag.moved = drag.moved || Math.abs(e.clientX - drag.x) > 3;
      tip.style.display = "none";
      if (drag.moved) view(drag.from - by, drag.to - by);
      return;
    }
    const h = hit(e);
    tip.style.display = h ? "block" : "none";
    if (!h) return;
    tip.textContent = d.names[h.s[2]] + "\n" + h.s[1].toLocaleString("en") + " ns at " + us(h.s[0]) +
      (h.r.ledger && h.s[3] !== null ? "\nclick for the evidence" : "");
    tip.style.left = Math.min(e.clientX + 14, innerWidth - 450) + "px"; tip.style.top = e.clientY + 16 + "px";
  });
  canvas.addEventListener("pointerup", e => {
    if (drag && !drag.moved) { pinned = hit(e); show(pinned); draw(); }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", () => view(0, d.window_ns));
  canvas.addEventListener("keydown", e => {
    const w = to - from, k = e.key;
    if (k === "ArrowLeft") view(from - w / 8, to - w / 8);
    else if (k === "ArrowRight") view(from + w / 8, to + w / 8);
    else if (k === "+" || k === "=") zoom((from + to) / 2, .7);
    else if (k === "-") zoom((from + to) / 2, 1.4);
    else if (k === "0") view(0, d.window_ns);
    else return;
    e.preventDefault();
  });
  const act = { "in": () => zoom((from + to) / 2, .5), out: () => zoom((from + to) / 2, 2), all: () => view(0, d.window_ns) };
  box.parentNode.querySelectorAll("button[data-act]").forEach(b => b.addEventListener("click", () => act[b.dataset.act]()));
  addEventListener("resize", draw);
  d.hint = info.textContent;
  const key = box.parentNode.querySelector(".key");
  const entry = (c, text) => {
    const s = document.createElement("span"), i = document.createElement("i");
    i.style.background = c; s.appendChild(i); s.appendChild(document.createTextNode(text)); key.appendChild(s);
  };
  d.groups.slice(0, 12).forEach((n, i) => entry(colours[i % colours.length], n.length > 48 ? n.slice(0, 47) + "…" : n));
  [...new Set(d.segments.map(s => s[4]))].filter(k => gaps[k]).forEach(k => entry(gaps[k], k));
  if (d.segments.some(s => s[4] === "overlap")) entry("linear-gradient(#c5cbd5 35%, #7d8899 35%)", "ledger: several at once");
  draw();
}
document.querySelectorAll(".tl").forEach(box => timeline(box, JSON.parse(document.getElementById(box.dataset.from).textContent)));
