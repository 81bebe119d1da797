// agenticow, asked by the bench: agenticow.mjs ENGINE FOLDER ROWS QUESTIONS DIM
//
// Speaks as peer.py does: one line about building, then for every line read, an ef, one pass over all questions.
// Its index is built by the first question, which is what `build_cpu_s` tells.

import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { open } from 'agenticow';

const K = 10;
const ROWS_AT_ONCE = 10_000;
const [engine, folder, rowsPath, questionsPath, dimText] = process.argv.slice(2);
const dim = Number(dimText);

function floats(file, start, end) {
  const bytes = Buffer.alloc((end - start) * dim * 4);
  const descriptor = fs.openSync(file, 'r');
  fs.readSync(descriptor, bytes, 0, bytes.length, start * dim * 4);
  fs.closeSync(descriptor);
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

const rowsOf = (file) => fs.statSync(file).size / (dim * 4);
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

const asked = rowsOf(questionsPath);
const all = floats(questionsPath, 0, asked);
const questions = Array.from({ length: asked }, (_, n) => all.slice(n * dim, (n + 1) * dim));

const store = path.join(folder, 'agenticow.rvf');
const built = path.join(folder, 'agenticow.json');
if (!fs.existsSync(built)) {
  fs.rmSync(store, { force: true });
  const memory = open(store, { dimension: dim, metric: 'cosine', m: 16, efConstruction: 200, track: false });
  const rows = rowsOf(rowsPath);
  for (let start = 0; start < rows; start += ROWS_AT_ONCE) {
    const end = Math.min(rows, start + ROWS_AT_ONCE);
    const ids = Array.from({ length: end - start }, (_, n) => start + n);
    memory.ingest(floats(rowsPath, start, end), ids);
  }
  const before = cpuSeconds();
  memory.query(questions[0], K);
  const build_cpu_s = cpuSeconds() - before;
  memory.close();
  fs.writeFileSync(built, JSON.stringify({ build_cpu_s }));
}
const residentMb = () =>
  Number(/RssAnon:\s+(\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]) / 1000;
const before = residentMb();
const start = performance.now();
const memory = open(store, { metric: 'cosine', track: false });
memory.query(questions[0], K);
const open_ms = performance.now() - start;
const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const { version } = JSON.parse(fs.readFileSync(new URL('node_modules/agenticow/package.json', import.meta.url)));
tell({ engine, version, open_ms, resident_mb: residentMb() - before, ...JSON.parse(fs.readFileSync(built)) });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const ef = Number(line);
  const begin = cpuSeconds();
  const answers = questions.map((question) => memory.query(question, K, { efSearch: ef }));
  const us = ((cpuSeconds() - begin) * 1e6) / asked;
  const ids = answers.flatMap((hits) => Array.from({ length: K }, (_, n) => hits[n]?.id ?? -1));
  tell({ ef, us, ids });
}
memory.close();
