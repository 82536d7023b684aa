// MessagePack, as far as a session needs it: https://msgpack.org has the whole format.

const text = new TextEncoder();
const untext = new TextDecoder("utf-8", { fatal: true });

export function pack(value) {
  const parts = [];
  write(value, parts);
  return new Uint8Array(parts.flatMap((part) => (typeof part === "number" ? part : [...part])));
}

function write(value, parts) {
  if (value === null) parts.push(0xc0);
  else if (typeof value === "boolean") parts.push(value ? 0xc3 : 0xc2);
  else if (Number.isInteger(value)) writeInteger(value, parts);
  else if (typeof value === "string") {
    const bytes = text.encode(value);
    writeSize(bytes.length, [0xd9, 0xda, 0xdb], parts, bytes.length < 32 ? 0xa0 : null);
    parts.push(bytes);
  } else if (value instanceof Uint8Array) {
    writeSize(value.length, [0xc4, 0xc5, 0xc6], parts, null);
    parts.push(value);
  } else if (Array.isArray(value)) {
    writeSize(value.length, [0xdc, 0xdc, 0xdd], parts, value.length < 16 ? 0x90 : null);
    for (const one of value) write(one, parts);
  } else {
    const entries = Object.entries(value);
    writeSize(entries.length, [0xde, 0xde, 0xdf], parts, entries.length < 16 ? 0x80 : null);
    for (const [key, one] of entries) {
      write(key, parts);
      write(one, parts);
    }
  }
}

function writeInteger(value, parts) {
  if (value >= 0 && value < 128) parts.push(value);
  else if (value < 0 && value >= -32) parts.push(256 + value);
  else {
    const bytes = new Uint8Array(9);
    bytes[0] = 0xd3;
    new DataView(bytes.buffer).setBigInt64(1, BigInt(value));
    parts.push(bytes);
  }
}

function writeSize(size, codes, parts, short) {
  if (short !== null) parts.push(short + size);
  else if (size < 256 && codes[0] !== codes[1]) parts.push(codes[0], size);
  else if (size < 65536) parts.push(codes[1], size >> 8, size & 255);
  else parts.push(codes[2], size >>> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255);
}

export function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;

  const take = (count) => bytes.subarray(at, (at += count));
  const number = (size, read) => {
    const found = read.call(view, at);
    at += size;
    return Number(found);
  };
  const size = (width) =>
    number(width, { 1: view.getUint8, 2: view.getUint16, 4: view.getUint32 }[width]);
  const list = (count) => Array.from({ length: count }, read);
  const map = (count) => Object.fromEntries(Array.from({ length: count }, () => [read(), read()]));
  const string = (count) => untext.decode(take(count));

  function read() {
    const code = size(1);
    if (code < 0x80) return code;
    if (code < 0x90) return map(code - 0x80);
    if (code < 0xa0) return list(code - 0x90);
    if (code < 0xc0) return string(code - 0xa0);
    if (code >= 0xe0) return code - 256;
    switch (code) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: return take(size(1));
      case 0xc5: return take(size(2));
      case 0xc6: return take(size(4));
      case 0xca: return number(4, view.getFloat32);
      case 0xcb: return number(8, view.getFloat64);
      case 0xcc: return size(1);
      case 0xcd: return size(2);
      case 0xce: return size(4);
      case 0xcf: return number(8, view.getBigUint64);
      case 0xd0: return number(1, view.getInt8);
      case 0xd1: return number(2, view.getInt16);
      case 0xd2: return number(4, view.getInt32);
      case 0xd3: return number(8, view.getBigInt64);
      case 0xd9: return string(size(1));
      case 0xda: return string(size(2));
      case 0xdb: return string(size(4));
      case 0xdc: return list(size(2));
      case 0xdd: return list(size(4));
      case 0xde: return map(size(2));
      case 0xdf: return map(size(4));
      default: throw new Error(`byte ${code} begins no value`);
    }
  }

  const value = read();
  if (at !== bytes.length) throw new Error(`${bytes.length - at} bytes are left`);
  return value;
}
