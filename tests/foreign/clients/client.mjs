// A client that knows nothing of geolog but docs/PROXY.md, with the platform's own WebSocket.
//
//     node client.mjs SUBPROTOCOL STREAM WRITER URL...
//
// It appends numbered records through the proxies until its stdin ends, several at a time, and
// prints a line per answer. Then it reads the stream, and prints a report. It goes where a
// proxy sends it, and to the next proxy when one is lost.

import { setTimeout as sleep } from "node:timers/promises";
import { pack, unpack } from "./messagepack.mjs";

const [subprotocol, stream, writer, ...proxies] = process.argv.slice(2);
const isBinary = subprotocol === "geolog.v1.msgpack";
const encode = isBinary ? pack : JSON.stringify;
const decode = (data) => (isBinary ? unpack(new Uint8Array(data)) : JSON.parse(data));
const asText = (value) => (value instanceof Uint8Array ? new TextDecoder().decode(value) : value);

const WINDOW = 8;
const PAUSE_MS = 5;

const unanswered = []; // Seqs that were sent or are to be sent, in order.
const acked = [];
const report = { acked, read: [], redirects: 0, lost: 0, duplicates: 0 };
let next = 0;
let isEnding = false;
let closeWhenDone = () => {};
process.stdin.on("end", () => {
  isEnding = true;
  closeWhenDone();
});
process.stdin.resume();

const isDone = () => isEnding && unanswered.length === 0;

function open(url) {
  const socket = new WebSocket(url, [subprotocol]);
  socket.binaryType = "arraybuffer";
  return socket;
}

// Append through one proxy. Resolves with the URL to go to, or null if this proxy is lost.
function append(url) {
  return new Promise((resolve, reject) => {
    const socket = open(url);
    let location = null;
    let timer = null;
    let hasHello = false;
    const send = (seq) =>
      socket.send(encode({ id: seq, seq, writer, key: writer, value: `${writer} ${seq}` }));
    closeWhenDone = () => {
      if (isDone()) socket.close();
    };
    const more = () => {
      if (!isEnding && unanswered.length < WINDOW) {
        unanswered.push(next);
        send(next++);
      }
    };
    socket.onmessage = ({ data }) => {
      const message = decode(data);
      switch (message.type) {
        case "hello":
          hasHello = true;
          for (const seq of unanswered) send(seq); // The log drops those that it has.
          timer = setInterval(more, PAUSE_MS);
          closeWhenDone();
          break;
        case "ack":
          if (message.id !== unanswered[0]) reject(new Error(`not in order: ${message.id}`));
          unanswered.shift();
          acked.push([message.id, message.sequence]);
          report.duplicates += Number(message.duplicate);
          console.log(`acked ${acked.length}`);
          closeWhenDone();
          break;
        case "error":
          if (message.location) {
            location = message.location;
            report.redirects += 1;
          } else if (!message.retriable && message.outcome !== "unknown") {
            reject(new Error(message.error));
          }
          socket.close();
          break;
      }
    };
    socket.onerror = () => {}; // A close follows.
    socket.onclose = () => {
      clearInterval(timer);
      if (location === null && !isDone()) report.lost += 1;
      resolve(location);
    };
  });
}

async function appendAll() {
  const path = `/v1/streams/${stream}/append?writer=${encodeURIComponent(writer)}`;
  let url = proxies[0] + path;
  for (let turn = 1; ; turn += 1) {
    const location = await append(url);
    if (isDone()) return;
    if (location === null) {
      await sleep(100);
      const lost = new URL(url).host;
      url = `${proxies[turn % proxies.length]}${path}&avoid=${lost}`;
    } else url = location;
  }
}

// Read the whole stream. Resolves once the proxy has said that this was the end.
function read(url) {
  return new Promise((resolve, reject) => {
    const socket = open(url);
    let isWhole = false;
    socket.onmessage = ({ data }) => {
      const message = decode(data);
      if (message.type === "record" && asText(message.key) === writer)
        report.read.push([message.sequence, asText(message.value)]);
      isWhole ||= message.type === "end";
    };
    socket.onclose = ({ code }) =>
      isWhole && code === 1000 ? resolve() : reject(new Error(`not read to the end: ${code}`));
  });
}

await appendAll();
await read(`${proxies[0]}/v1/streams/${stream}/read`);
console.log(JSON.stringify(report));
process.exit(0);
