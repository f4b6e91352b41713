// assemble.mjs SPEEDSCOPE SOURCES TARGET: one HTML file of speedscope's released viewer and the page around it.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [speedscope, sources, target] = process.argv.slice(2);
const release = join(speedscope, "dist", "release");
const files = readdirSync(release);

function one(pattern) {
  const found = files.filter((name) => pattern.test(name));
  if (found.length !== 1) throw new Error(`${release}: ${found.length} files match ${pattern}`);
  return found[0];
}

function replaceOnce(text, pattern, replacement, what) {
  const found = text.match(new RegExp(pattern, "g")) ?? [];
  if (found.length !== 1) throw new Error(`speedscope: ${found.length} places for ${what}, expected one`);
  return text.replace(new RegExp(pattern), replacement);
}

// In a script element, `</script` would end it, whatever the language around it.
const inScript = (text) => text.replace(/<\/(script)/gi, "<\\/$1").replace(/<!--/g, "<\\!--");

function viewer() {
  let script = readFileSync(join(release, one(/^speedscope-.*\.js$/)), "utf8");
  // It takes its profile from a file named in the address; here both are in the page around it.
  script = replaceOnce(
    script,
    /\((\w+)=window\.location\.hash\)/,
    '($1="#localProfilePath=permille")',
    "the address",
  );
  script = replaceOnce(
    script,
    /let (\w+)=document\.createElement\("script"\);\1\.src=`file:\/\/\/\$\{this\.props\.hashParams\.localProfilePath\}`,document\.head\.appendChild\(\1\)/,
    "window.parent.permilleShow(window.speedscope)",
    "the loading of a local profile",
  );
  // What it cannot read it tells the console alone.
  script = replaceOnce(
    script,
    /console\.log\("Failed to load format",(\w+)\)/,
    '(console.log("Failed to load format",$1),window.parent.permilleFailed($1))',
    "the failure to load a profile",
  );
  script = script.replace(/\/\/# sourceMappingURL=.*$/gm, "");
  let style = readFileSync(join(release, one(/^speedscope-.*\.css$/)), "utf8");
  const font = one(/^SourceCodePro-.*\.woff2$/);
  const data = readFileSync(join(release, font)).toString("base64");
  style = replaceOnce(
    style,
    /url\("\.\/SourceCodePro-[^"]*"\)/,
    `url("data:font/woff2;base64,${data}")`,
    "the font",
  ).replace(/\/\*# sourceMappingURL=.*\*\//g, "");
  return `<!DOCTYPE html><html><head><meta charset="UTF-8"><title>speedscope</title><style>${style}</style></head><body><script>${inScript(script)}</script></body></html>`;
}

function licenses() {
  const read = (path) => readFileSync(join(speedscope, path), "utf8").trim();
  return `speedscope\n\n${read("LICENSE")}\n\nSource Code Pro\n\n${read("dist/release/source-code-pro.LICENSE.md")}\n`;
}

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const parts = {
  "{{STYLE}}": readFileSync(join(sources, "page.css"), "utf8"),
  "{{SCRIPT}}": inScript(readFileSync(join(sources, "page.js"), "utf8")),
  "{{VIEWER}}": Buffer.from(viewer()).toString("base64"),
  "{{LICENSES}}": escape(licenses()),
};
let page = readFileSync(join(sources, "page.html"), "utf8");
for (const [name, text] of Object.entries(parts)) {
  if (page.split(name).length !== 2) throw new Error(`page.html: ${name} must be there once`);
  page = page.replace(name, () => text);
}
writeFileSync(target, page);
