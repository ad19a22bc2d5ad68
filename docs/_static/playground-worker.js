// Runs zkwire in Pyodide, beside the page: what is asked in JSON is answered in JSON.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const ready = (async () => {
  const [python, archive] = await Promise.all([
    loadPyodide(),
    fetch(new URL("zkwire.zip", import.meta.url)).then((answer) => answer.arrayBuffer()),
  ]);
  python.unpackArchive(archive, "zip", { extractDir: "/zkwire" });
  python.runPython('import sys; sys.path.insert(0, "/zkwire")');
  return python.pyimport("docs.playground.playground");
})();

self.onmessage = async ({ data: { number, asked } }) => {
  try {
    const playground = await ready;
    self.postMessage({ number, answered: playground.answer(asked) });
  } catch (error) {
    self.postMessage({ number, failed: String(error) });
  }
};
