"""Style sheet and the few lines of script of report.html."""

from __future__ import annotations

CSS = """
:root{color-scheme:light;--ink:#24292f;--soft:#6b7280;--line:#e5e7eb;--wash:#f7f8fa}
*{box-sizing:border-box}
body{margin:0;color:var(--ink);background:#fff;
 font:15px/1.55 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:980px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:24px;line-height:1.25;margin:0 0 12px}
h2{font-size:18px;margin:40px 0 8px}
h3{font-size:14px;margin:0}
.lead{font-size:17px;max-width:74ch;margin:0 0 20px}
.note{border-left:3px solid #d55e00;padding:4px 12px;background:var(--wash);margin:8px 0}
.sub,figcaption,.meta{color:var(--soft);font-size:13px}
.sub{margin:0 0 12px;max-width:90ch}
figure{margin:16px 0;overflow-x:auto}
figure svg{max-width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:8px 10px;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-size:12px;font-weight:600;color:var(--soft);vertical-align:bottom}
th:first-child,td:first-child{text-align:left}
td small{display:block;color:var(--soft);font-size:11px;max-width:13em;margin-left:auto}
td:first-child small{margin-left:0;color:#b45309}
#runs td{font-size:12px;padding:4px 10px}
blockquote{margin:0 0 12px;padding:10px 14px;background:var(--wash);border-radius:6px;
 white-space:pre-wrap;overflow-wrap:anywhere}
.cards{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(200px,1fr))}
article{border:1px solid var(--line);border-radius:6px;padding:12px}
article.before{background:var(--wash)}
.meta{margin:2px 0 8px}
.text{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:14px}
select{max-width:100%;font:inherit;font-size:14px;padding:3px 6px}
details{margin:12px 0}
pre{overflow-x:auto;background:var(--wash);padding:12px;font-size:12px}
"""

SCRIPT = """
"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const options = {actions: {export: true, source: false, compiled: false, editor: false},
                 renderer: "svg", mode: "vega-lite", downloadFileName: "tether"};
Promise.all(Object.entries(charts).map(([id, spec]) => vegaEmbed("#" + id, spec, options)))
  .then(() => document.body.setAttribute("data-charts", "drawn"))
  .catch((e) => document.body.setAttribute("data-charts", "failed: " + e.message));
const choice = document.getElementById("prompts");
if (choice) choice.addEventListener("change", () => {
  for (const s of document.querySelectorAll(".prompt"))
    s.hidden = s.dataset.prompt !== choice.value;
});
"""
