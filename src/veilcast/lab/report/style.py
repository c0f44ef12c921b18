"""The style of the page and its figures: one set of colours for light, one for dark; print is always light.

The palette suits colour-blind readers: every pair differs enough under the common kinds of colour blindness (a test
computes it), and lines also differ in dash and marker. Nothing is fetched: fonts are the system's.
"""

from __future__ import annotations

from typing import Final

PALETTE: Final = (
    ("#0072c6", "#7fa8ff"),
    ("#e8480c", "#f0761c"),
    ("#0c9a66", "#62cfa0"),
    ("#93166d", "#c06fb4"),
    ("#85880f", "#f2ea5a"),
    ("#3a9bd6", "#b6dfff"),
    ("#332288", "#6a76f2"),
    ("#59853f", "#b9d670"),
    ("#cc79a7", "#ffe3d3"),
    ("#5b4636", "#a08058"),
)
"""Colours of lines, each as (on light, on dark)."""

PAPER: Final = ("#ffffff", "#14171c")
SURFACES: Final = {
    "paper": PAPER,
    "panel": ("#f6f7f9", "#1c2027"),
    "ink": ("#1b1f24", "#e6e9ee"),
    "soft": ("#59626d", "#a3adb9"),
    "faint": ("#e2e6ea", "#2e343d"),
    "link": ("#0a5ca8", "#8ab8ff"),
    "good": ("#0a7a4b", "#5fd3a0"),
    "half": ("#9a6200", "#f2b84b"),
    "bad": ("#b3261e", "#ff8a80"),
}

SHADES: Final = (
    (("#eef0f3", "#1b1f24"), ("#232830", "#e6e9ee")),
    (("#fdebd3", "#1b1f24"), ("#3a2a1c", "#e6e9ee")),
    (("#fcd3a1", "#1b1f24"), ("#57371b", "#f2ede6")),
    (("#f7ab68", "#1b1f24"), ("#774617", "#f7f1ea")),
    (("#ea7c3c", "#1b1f24"), ("#a8601c", "#ffffff")),
    (("#bb4a12", "#ffffff"), ("#dd8a3e", "#14171c")),
    (("#7f2704", "#ffffff"), ("#ffc183", "#14171c")),
)
"""Shades of a matrix from chance to certainty, each as (background, letters) on light and on dark: one colour of rising
strength, so that all readers see the order."""


def _variables(dark: bool) -> str:
    named = {**SURFACES, **{f"c{number}": pair for number, pair in enumerate(PALETTE)}}
    for number, shade in enumerate(SHADES):
        named |= {f"h{number}": (shade[0][0], shade[1][0]), f"t{number}": (shade[0][1], shade[1][1])}
    return "".join(f"--{name}:{pair[dark]};" for name, pair in named.items())


COLOURS: Final = (
    f":root{{color-scheme:light dark;{_variables(False)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(True)}}}}}"
)

FIGURE: Final = (
    "#vg-tooltip-element.custom-theme{background:var(--panel);color:var(--ink);border:1px solid var(--faint);"
    "border-radius:.3rem;padding:.3rem .55rem;font-size:.8125rem;position:fixed;visibility:hidden;z-index:9}"
    "#vg-tooltip-element.custom-theme.visible{visibility:visible}"
    "#vg-tooltip-element.custom-theme td.key{color:var(--soft);padding-right:.6rem;text-align:right}"
    "#vg-tooltip-element.custom-theme :is(td,tr){border:0;padding-top:0;padding-bottom:0}"
    ".chart,.chart.vega-embed{display:block;width:100%}"
)

MATRIX: Final = """
.choices{display:none;flex-wrap:wrap;gap:.4rem 1.6rem;margin:.5rem 0 .7rem}
@supports selector(:has(*)){.choices{display:flex}.decision caption{position:absolute;clip-path:inset(50%)}}
.choices fieldset{border:0;padding:0;margin:0;display:flex;align-items:center;gap:.25rem;font-size:.875rem}
.choices legend{float:left;padding:0 .35rem 0 0;color:var(--soft)}
.choices label{position:relative;cursor:pointer}
.choices input{position:absolute;inset:0;margin:0;opacity:0;cursor:pointer}
.choices span{display:block;padding:.15rem .6rem;border:1px solid var(--faint);border-radius:.35rem;
font-variant-numeric:tabular-nums}
.choices input:checked+span{background:var(--ink);border-color:var(--ink);color:var(--paper)}
.choices input:focus-visible+span{outline:2px solid var(--link);outline-offset:2px}
.view{overflow-x:auto;margin:.4rem 0;min-width:100%;width:max-content;max-width:100%}
@media screen and (min-width:52rem){.view{max-width:calc(100% + (100vw - 48rem)/2 - 2rem)}}
@media screen and (min-width:78rem){.view{max-width:calc(100% + (100vw - 72rem)/2 - 1rem)}}
.decision table{font-size:.75rem;border-collapse:separate;border-spacing:2px}
.decision caption{text-align:left;font-weight:600;padding:.3rem 0}
.decision :is(th,td){border:0;padding:.4rem .15rem}
.decision td{text-align:center;vertical-align:middle}.decision thead th{font-size:.75rem;padding:.2rem 0}
.decision thead th span{writing-mode:vertical-rl;transform:rotate(180deg);margin:0 auto;display:block}
.decision thead th{vertical-align:bottom}.decision tbody th{color:var(--ink);vertical-align:middle}
.decision .defence{position:sticky;left:0;background:var(--paper);padding-left:0}
.decision .shade{border-radius:.25rem}.decision .none{color:var(--soft)}
.decision .strongest{text-align:left;padding-left:.6rem;padding-right:.6rem}
.strongest b,.strongest span{display:block;white-space:nowrap}.strongest span{font-size:.6875rem}
.decision td.cost{text-align:right;padding:.4rem .5rem .4rem .3rem}
.decision .cost .small{display:block;font-size:.6875rem;white-space:nowrap}
.overview :is(th,td){padding:.35rem .45rem;text-align:center;vertical-align:middle;border:0}
.overview .small{display:block;font-size:.6875rem;white-space:nowrap;color:inherit}
.overview a{color:inherit;font-weight:600}.overview .none{color:var(--soft)}
.scale .shade{display:inline-block;padding:.05rem .35rem;border-radius:.25rem;margin:0 1px}
@media print{.choices{display:none!important}.view{overflow:visible}
.decision table{font-size:.625rem}.decision :is(th,td){padding:.35rem .1rem}
.decision caption{position:static!important;clip-path:none!important}.decision .defence{position:static}}
""" + "".join(f".h{number}{{background:var(--h{number});color:var(--t{number})}}" for number in range(len(SHADES)))

PAGE: Final = """
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;color:var(--ink);background:var(--paper);overflow-wrap:break-word;
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
.sheet{max-width:48rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.15;letter-spacing:-.02em;margin:0 0 .5rem}
h2{font-size:1.45rem;line-height:1.25;letter-spacing:-.01em;margin:0 0 .35rem}
h3,.minor{font-size:1rem;letter-spacing:0;margin:1.6rem 0 .4rem}
p{margin:.5rem 0}a{color:var(--link)}
code{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.lead{font-size:1.1rem;color:var(--soft);margin:0 0 1.5rem}.small{font-size:.875rem;color:var(--soft)}
.sign{width:1em;height:1em;flex:none;vertical-align:-.12em;margin-right:.4em;color:var(--soft)}
.sign .ring,.sign .cross{fill:none;stroke:currentColor;stroke-width:1.8}.sign .cross{stroke-linecap:round}
.sign .full{fill:currentColor}
.fits,.near{color:var(--good)}.partly{color:var(--half)}.not-reproduced{color:var(--bad)}
.tally{display:grid;grid-template-columns:repeat(auto-fit,minmax(7rem,1fr));gap:.75rem;margin:1.25rem 0;padding:0}
.tally li{list-style:none;background:var(--panel);border-radius:.6rem;padding:.8rem 1rem;display:flex;
flex-direction:column}
.tally b{font-size:1.9rem;line-height:1.1;font-variant-numeric:tabular-nums;display:flex;align-items:center}
.tally b .sign{width:.62em;height:.62em}
.findings{padding:0;margin:.4rem 0}
.findings li{list-style:none;border-left:3px solid currentColor;padding:.1rem 0 .1rem .8rem;margin:.7rem 0}
.findings li>*{color:var(--ink)}.findings .small,.findings.soft{color:var(--soft)}
.contents ol{padding:0;margin:.4rem 0}.contents li{list-style:none;border-top:1px solid var(--faint)}
.contents li a{display:flex;gap:.75rem;padding:.45rem 0;text-decoration:none;align-items:baseline}
.contents li a:hover .what{text-decoration:underline}
.contents .what{flex:1;min-width:0}.contents .source{color:var(--soft);font-size:.875rem}
.contents .signs{white-space:nowrap}.contents .signs .sign{margin:0 0 0 .2em}
.experiment{border-top:1px solid var(--faint);margin-top:3rem;padding-top:2rem;scroll-margin-top:1rem}
.experiment .id{font-size:.875rem;color:var(--soft);display:flex;flex-wrap:wrap;gap:.25rem .9rem;margin:0 0 .35rem}
.claim{font-size:1.08rem}
.flag{display:inline-block;border:1px solid currentColor;border-radius:.3rem;padding:0 .45em;font-size:.8125rem;
color:var(--half);white-space:nowrap}
.notice{border-left:3px solid var(--half);background:var(--panel);padding:.55rem .9rem;border-radius:0 .4rem .4rem 0}
figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.25rem}
figure .under{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1rem}
svg.plot{display:block;max-width:100%;height:auto}.narrow{display:none}
table{border-collapse:collapse;width:100%;font-size:.9375rem;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;font-size:.8125rem;color:var(--soft);white-space:nowrap}
th,td{padding:.5rem .7rem .5rem 0;border-bottom:1px solid var(--faint);vertical-align:top}
td.number,th.number{text-align:right;white-space:nowrap}.verdicts :is(th,td):last-child{padding:.5rem 0 .5rem .7rem}
td .small{display:block;white-space:normal}td.number .small{white-space:nowrap}
.verdict{white-space:nowrap;font-weight:600}.verdicts td:first-child{width:36%}
.verdicts .explained td{border:0;padding-bottom:0}.verdicts td.why{padding:.2rem 0 .6rem}
.scroll{overflow-x:auto}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.3rem 1.1rem;margin:.6rem 0;font-size:.9375rem}
dt{color:var(--soft)}dd{margin:0}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--link);font-size:.875rem}
pre{margin:.3rem 0;padding:.6rem .8rem;background:var(--panel);border-radius:.4rem;white-space:pre-wrap;
overflow-wrap:anywhere}
.top{display:inline-block;margin-top:.6rem;font-size:.875rem}
@media screen and (min-width:78rem){
.sheet{max-width:72rem;display:grid;grid-template-columns:18rem minmax(0,46rem);column-gap:4rem}
.sheet>*{grid-column:2}
.contents{grid-column:1;grid-row:1/99;position:sticky;top:1.5rem;align-self:start;max-height:calc(100vh - 3rem);
overflow-y:auto;font-size:.875rem;line-height:1.4}
.contents .source{display:none}.contents li a{padding:.4rem .2rem .4rem 0;gap:.5rem}
}
@media screen and (max-width:38rem){
.sheet{padding:1.5rem 1rem 3rem}h1{font-size:1.65rem}
.tally{gap:.5rem}.tally li{padding:.6rem .7rem;font-size:.875rem}
.wide{display:none}.narrow{display:block}
.contents .source{display:none}
.verdicts thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.verdicts tr{display:block;border-bottom:1px solid var(--faint);padding:.6rem 0}
.verdicts .explained{border:0;padding-bottom:0}.verdicts .explained+tr{padding-top:0}
.verdicts td:first-child{width:auto}
.verdicts td,.verdicts td:last-child{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.12rem 0}
.verdicts td[data-name]::before{content:attr(data-name);color:var(--soft)}
.verdicts td[data-name]{text-align:right}
dl{grid-template-columns:minmax(0,1fr);gap:0}dd{margin-bottom:.5rem}
}
@media print{
@page{margin:16mm 14mm}
html{font-size:10pt}body{font-size:1rem}.sheet{max-width:none;padding:0}
.top,.scroll,details{display:none}
.experiment{break-before:page;border:0;margin:0;padding:0}
figure,tr,.findings li,.tally,dl>*{break-inside:avoid}h2,h3,figcaption{break-after:avoid}
a{color:inherit;text-decoration:none}.tally li,pre,.notice{border:1px solid var(--faint)}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
