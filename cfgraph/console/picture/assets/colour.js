// Fill of boxes: liveness, device, or time.

const HUE_STEP = 222.5; // neighbours far apart, and from those of others as far as it gets
const devices = [...new Set(nodes.map((node) => node.device).filter(Boolean))].sort();

const COLOURS = {
  "liveness": (members) => {
    const when = whenOf(nodes[members[0]]);
    if (!when || members.some((n) => whenOf(nodes[n]) !== when)) return null;
    if (when[0] === "never") return { never: true };
    return when[0] === "sometimes" ? { hue: (when[2] * HUE_STEP) % 360 } : null;
  },
  device: (members) => {
    const { device } = nodes[members[0]];
    if (!device || members.some((n) => nodes[n].device !== device)) return null;
    return { hue: (devices.indexOf(device) * HUE_STEP + 200) % 360 };
  },
  time: (members) => {
    const total = members.reduce((sum, n) => sum + timeOf(n), 0);
    return total ? { share: Math.min(1, 0.06 + 0.94 * Math.sqrt(total / busiest())) } : null;
  },
  nothing: () => null,
};

function paint() {
  const fillOf = COLOURS[document.getElementById("colour").value];
  const members = new Map();
  drawn.shown.forEach((id, n) => {
    if (!id) return;
    if (members.has(id)) members.get(id).push(n);
    else members.set(id, [n]);
  });
  for (const [id, inside] of members) {
    const element = elementOf(id), fill = fillOf(inside);
    element.classList.toggle("hued", fill?.hue !== undefined);
    element.classList.toggle("never", Boolean(fill?.never));
    element.classList.toggle("hot", fill?.share !== undefined);
    element.style.setProperty("--hue", fill?.hue ?? 0);
    element.style.setProperty("--share", fill?.share ?? 0);
  }
}

function offerColours() {
  const choice = document.getElementById("colour");
  for (const name of Object.keys(COLOURS)) {
    if (name === "device" && !devices.length) continue;
    if (name === "time" && !model.run) continue;
    choice.append(new Option(name, name));
  }
  choice.addEventListener("change", () => {
    legend();
    if (svg) paint();
  });
}
