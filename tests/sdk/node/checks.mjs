// What all scenarios share.

// Two- to four-byte characters, a joined emoji, a line separator, a NUL, JSON's own characters.
export const unicodePrompt = 'Grüße, 東京! Ελλάδα — naïve café; क्षत्रिय 👩‍🚀🚂 \u2028 \u0000 "quoted" \\ end';

// 64 KiB of text.
export const longPrompt = 'question together thousand mountain sentence '.repeat(1500).slice(0, 64 << 10);

export function check(condition, found) {
  if (!condition) throw new Error(`unexpected: ${typeof found === 'string' ? found : JSON.stringify(found)}`);
}

// Returns the error of the wanted class that call must throw.
export async function expectError(kind, call) {
  let result;
  try {
    result = await call();
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error(`no ${kind.name}, but a result: ${JSON.stringify(result)?.slice(0, 500)}`);
}

// Runs call and returns the seconds it took.
export async function secondsOf(call) {
  const began = performance.now();
  await call();
  return (performance.now() - began) / 1000;
}
