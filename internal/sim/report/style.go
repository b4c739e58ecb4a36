package report

// style is the page's style sheet, for light and dark screens.
const style = `:root {
  --page: #ffffff; --ink: #1b1f24; --faint: #5b6570; --rule: #d9dee3; --heat: #0b5cad; --note: #fff4d6;
  --c0: #0b6bcb; --c1: #d1480f; --c2: #12805c; --c3: #a03a8f; --c4: #a87400; --c5: #3d8fd1; --c6: #6b4fd0; --c7: #5b6570;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --ink: #e8ebee; --faint: #9aa5b0; --rule: #333a41; --heat: #6db3ff; --note: #3a3216;
    --c0: #5aa9ff; --c1: #ff8a5c; --c2: #4cc79a; --c3: #e07fd0; --c4: #e0b04a; --c5: #a4d4ff; --c6: #a894ff; --c7: #9aa5b0;
  }
}
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: .9rem; margin: .75rem 0 .25rem; font-weight: 600; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: .5rem 1.5rem; }
dt { color: var(--faint); font-size: .85rem; }
dd { margin: 0; overflow-wrap: anywhere; }
.note { background: var(--note); padding: .75rem 1rem; border-radius: .25rem; }
.wide { overflow-x: auto; }
pre { font: 12px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; }
thead th { color: var(--faint); font-weight: 400; }
.name { text-align: left; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { color: var(--faint); font-size: .85rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
.grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 6 4; }
.heat { fill: var(--heat); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: 0 0 .25rem; padding: 0; font-size: .85rem; }
.legend svg { display: inline-block; width: 24px; height: 8px; margin-right: .4rem; vertical-align: middle; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
`
