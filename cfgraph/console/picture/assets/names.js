// Long names as the terminal shows them: a common scope once, and scopes that a function repeats folded.

const FUNCTION_SCOPE = /^(cond|body|then|else|branch\d+)$/;
// lengths of a name that is long, and of what a common scope must save
const LONG_NAME = 40, LEAST_SAVED = 60;
const NAME = /(?<![\w./…-])[A-Za-z0-9_.][\w.-]*(?:\/[\w.>-]+)+/g;

// the parts of a name from the scopes on that its innermost function repeats, and their number; null without
function repeatedScope(name) {
  const parts = name.split("/");
  for (let at = parts.length - 2; at > 0; at--) {
    if (!FUNCTION_SCOPE.test(parts[at])) continue;
    const outer = parts.slice(0, at), inner = parts.slice(at + 1, -1);
    for (let length = Math.min(outer.length, inner.length); length > 0; length--) {
      if (outer.slice(-length).join("/") === inner.slice(0, length).join("/")) return { rest: parts.slice(at + 1), length };
    }
  }
  return null;
}

// commands understand the end of a name
function foldedName(name) {
  const found = name.length < LONG_NAME ? null : repeatedScope(name);
  return found ? `…/${found.rest.join("/")}` : name;
}

// the end of a name, from a slash on, or its beginning and end, in so many characters
function cut(text, longest) {
  if (text.length <= longest) return text;
  const ends = text.split("/").map((_, at, parts) => `…/${parts.slice(at).join("/")}`);
  return ends.slice(1).find((end) => end.length <= longest) ?? `${text.slice(0, longest / 2 - 1)}…${text.slice(-longest / 2)}`;
}

// the scope that saves most in some names: `below` is its text, and `text` replaces names in a text
function commonScope(all) {
  const names = [...new Set(all)], plain = { below: "", text: (text) => text };
  if (names.length < 2 || greatest(names.map((name) => name.length)) < LONG_NAME) return plain;
  const folded = new Map(names.map((name) => [name, foldedName(name)]));
  let best = { saved: LEAST_SAVED - 1, ...plain };
  for (const scope of new Set(names.flatMap(scopesOf))) {
    const shown = new Map(names.map((name) => [name, belowScope(name, scope) ?? folded.get(name)]));
    const saved = names.reduce((sum, name) => sum + name.length - shown.get(name).length, 0) - scope.length;
    if (saved <= best.saved || new Set(shown.values()).size < shown.size) continue;
    best = { saved, below: scope, text: (text) => text.replace(NAME, (name) => shown.get(name) ?? name) };
  }
  return best;
}

// the outer scopes of a name, and the one that its function repeats
function scopesOf(name) {
  const parts = name.split("/").slice(0, -1), found = repeatedScope(name);
  const outer = parts.map((_, at) => `${parts.slice(0, at + 1).join("/")}/`);
  return found ? [...outer, `…/${found.rest.slice(0, found.length).join("/")}/`] : outer;
}

function belowScope(name, scope) {
  if (scope[0] !== "…") return name.startsWith(scope) ? name.slice(scope.length) : null;
  const inner = scope.slice(1), at = name.lastIndexOf(inner);
  return at < 0 ? null : name.slice(at + inner.length);
}
