// What the page holds compressed, by the identity of its element.
function bytesOf64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function unpacked(id) {
  const content = bytesOf64(document.getElementById(id).textContent);
  return new Response(new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// Runs scripts in their order; the page's policy knows each by its hash.
async function runPacked(...ids) {
  for (const text of await Promise.all(ids.map(unpacked))) {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
  }
}

// Where a browser cannot unpack, the page says so.
function beginPacked(...ids) {
  if (typeof DecompressionStream === "function") return runPacked(...ids);
  const said = document.createElement("p");
  said.textContent = "This page unpacks its figures by DecompressionStream, which browsers have since 2023: this one has not.";
  document.body.prepend(said);
}
