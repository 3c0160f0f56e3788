// Server-sent events of a stream that comes in pieces of any length. Nothing here touches the document.

// A line that is longer is no event of an API; without a bound a broken server could fill the memory.
const kMostBytes = 16 << 20;

export class EventParser {
  #rest = "";
  #data = [];
  #endsWithReturn = false;

  // Takes a piece; gives the data of the events that it completes. Fields other than `data` say nothing here.
  push(piece) {
    // "\r\n" may be cut between two pieces: it is one end of a line.
    if (this.#endsWithReturn && piece.startsWith("\n")) piece = piece.slice(1);
    if (piece) this.#endsWithReturn = piece.endsWith("\r");
    const lines = (this.#rest + piece).split(/\r\n|\n|\r/);
    this.#rest = lines.pop();
    if (this.#rest.length > kMostBytes) throw new Error("the server sends a line without an end");
    return lines.flatMap((line) => this.#take(line));
  }

  #take(line) {
    if (line === "") {
      const data = this.#data;
      this.#data = [];
      return data.length ? [data.join("\n")] : [];
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1);
    if (name === "data") this.#data.push(value.startsWith(" ") ? value.slice(1) : value);
    return [];
  }
}
