// Runs scenarios with an official JavaScript client and reports one JSON line
// each.
//
//   BASE_URL=http://127.0.0.1:8080 API_KEY=none MODEL=m node run.mjs openai chat chat_stream
//   BASE_URL=... node run.mjs anthropic             # names come line by line on stdin
//
// A line is {"name", "ok", "detail"}. The exit code is 1 if a scenario failed.

import readline from 'node:readline';

import anthropic from './anthropic_scenarios.mjs';
import openai from './openai_scenarios.mjs';

const clients = { openai, anthropic };

async function run(name, scenario, settings) {
  if (!scenario) return { name, ok: false, detail: 'no such scenario' };
  try {
    return { name, ok: true, detail: await scenario(settings) };
  } catch (error) {
    return { name, ok: false, detail: error?.stack ?? String(error) };
  }
}

const [client, ...names] = process.argv.slice(2);
const { BASE_URL, API_KEY, MODEL } = process.env;
if (!Object.hasOwn(clients, client ?? '') || !BASE_URL || !MODEL) {
  console.error(`usage: BASE_URL=http://host:port MODEL=name run.mjs ${Object.keys(clients).join('|')} [scenario...]`);
  process.exit(2);
}
const settings = { baseURL: BASE_URL.replace(/\/+$/, ''), apiKey: API_KEY || 'none', model: MODEL };
for await (const name of names.length > 0 ? names : readline.createInterface({ input: process.stdin })) {
  const result = await run(name, clients[client][name], settings);
  if (!result.ok) process.exitCode = 1;
  console.log(JSON.stringify(result));
}
