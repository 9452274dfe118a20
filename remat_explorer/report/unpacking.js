// What the page holds compressed, by the identity of its element.
function bytesOf64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

async function unpacked(id) {
  const content = bytesOf64(document.getElementById(id).textContent);
  return new Response(new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}
