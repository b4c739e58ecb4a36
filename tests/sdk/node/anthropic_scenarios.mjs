// Scenarios for the npm package `@anthropic-ai/sdk`.

import Anthropic from '@anthropic-ai/sdk';

import { check, expectError, longPrompt, secondsOf, unicodePrompt } from './checks.mjs';

const tool = {
  name: 'weather',
  description: 'Looks up the weather',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

function client(s, options = {}) {
  return new Anthropic({ baseURL: s.baseURL, apiKey: s.apiKey, maxRetries: 0, timeout: 60_000, ...options });
}

function ask(s, more = {}, text = 'Tell me about the sea.') {
  return { model: s.model, max_tokens: 24, messages: [{ role: 'user', content: text }], ...more };
}

const ended = (reason) => ['end_turn', 'max_tokens', 'stop_sequence'].includes(reason);

// The SDK keeps the whole body {"type": "error", "error": {...}} in error.error.
const codeOf = (error) => String(error.error?.error?.code);

export default {
  async messages(s) {
    const answer = await client(s).messages.create(ask(s));
    check(answer.role === 'assistant' && answer.content[0].text && ended(answer.stop_reason), answer);
    check(answer.usage.input_tokens > 0 && answer.usage.output_tokens > 0, answer.usage);
    return `${answer.usage.output_tokens} tokens, request id ${answer._request_id}`;
  },

  async messages_stream(s) {
    const events = [];
    for await (const event of await client(s).messages.create(ask(s, { stream: true }))) events.push(event);
    const kinds = events.map((event) => event.type);
    check(kinds[0] === 'message_start' && kinds.at(-1) === 'message_stop', kinds);
    check(kinds.filter((kind) => kind === 'content_block_delta').length > 1, kinds);
    const final = events.find((event) => event.type === 'message_delta');
    check(ended(final.delta.stop_reason) && final.usage.output_tokens > 0, final);
    return `${kinds.length} events`;
  },

  // The SDK's own accumulator must find the stream complete and in order.
  async messages_stream_helper(s) {
    let text = '';
    const message = await client(s).messages.stream(ask(s)).on('text', (delta) => { text += delta; }).finalMessage();
    check(text && message.content[0].text === text && ended(message.stop_reason), message);
    return text;
  },

  async messages_unicode(s) {
    const message = await client(s).messages.stream(ask(s, {}, unicodePrompt)).finalMessage();
    const { text } = message.content[0];
    check(text && !text.includes('\ufffd'), text);
    return text;
  },

  async messages_long_prompt(s) {
    const { usage } = await client(s).messages.create(ask(s, { max_tokens: 2 }, longPrompt));
    const tokens = usage.input_tokens + (usage.cache_read_input_tokens ?? 0);
    check(tokens > 5000, usage);
    return `${tokens} prompt tokens`;
  },

  async messages_tools(s) {
    const more = { tools: [tool], tool_choice: { type: 'tool', name: 'weather' } };
    const answer = await client(s).messages.create(ask(s, more));
    const block = answer.content.at(-1);
    check(answer.stop_reason === 'tool_use' && block.type === 'tool_use' && block.name === 'weather', answer);
    return JSON.stringify(block.input);
  },

  async messages_tools_stream(s) {
    const answer = await client(s).messages.stream(ask(s, { tools: [tool], tool_choice: { type: 'any' } })).finalMessage();
    const block = answer.content.at(-1);
    check(answer.stop_reason === 'tool_use' && block.type === 'tool_use' && block.name === 'weather', answer);
    return JSON.stringify(block.input);
  },

  // 16 streams at once, each whole.
  async messages_concurrent(s) {
    const c = client(s);
    const all = Array.from({ length: 16 }, async (_, i) => {
      const message = await c.messages.stream(ask(s, {}, `Story ${i}`)).finalMessage();
      check(ended(message.stop_reason) && message.content[0].text, message);
      return message.usage.output_tokens;
    });
    return `${(await Promise.all(all)).reduce((a, b) => a + b)} tokens`;
  },

  async count_tokens(s) {
    const { input_tokens: tokens } = await client(s).messages.countTokens({ model: s.model, messages: ask(s).messages });
    check(tokens > 0, `${tokens}`);
    return `${tokens} tokens`;
  },

  async error_unknown_model(s) {
    const call = () => client(s).messages.create(ask(s, { model: 'no-such-model' }));
    const error = await expectError(Anthropic.NotFoundError, call);
    check(error.type === 'not_found_error' && codeOf(error) === 'model_not_found', error);
    return error.message;
  },

  async error_missing_model(s) {
    const call = () => client(s).messages.create(ask(s, { model: undefined }));
    const error = await expectError(Anthropic.BadRequestError, call);
    check(error.type === 'invalid_request_error' && codeOf(error).startsWith('evenkeel_'), error);
    return error.message;
  },

  // The engine refuses the request; its own answer must arrive.
  async error_bad_request(s) {
    const call = () => client(s).messages.create(ask(s, { temperature: 'hot' }));
    const error = await expectError(Anthropic.BadRequestError, call);
    check(!JSON.stringify(error.error).includes('evenkeel_'), error);
    return error.message;
  },

  async error_wrong_key(s) {
    const call = () => client(s, { apiKey: 'wrong' }).messages.create(ask(s));
    const error = await expectError(Anthropic.AuthenticationError, call);
    check(error.type === 'authentication_error' && codeOf(error).startsWith('evenkeel_'), error);
    return error.message;
  },

  // Nothing can answer: a 5xx in the shape that the client knows.
  async error_unavailable(s) {
    const error = await expectError(Anthropic.InternalServerError, () => client(s).messages.create(ask(s)));
    check([502, 503, 504, 529].includes(error.status) && codeOf(error).startsWith('evenkeel_'), error);
    return `${error.status} ${error.message}`;
  },

  // A 429 with `retry-after: 1` comes first; the client waits and succeeds.
  async retry_after(s) {
    let answer;
    const waited = await secondsOf(async () => {
      answer = await client(s, { maxRetries: 3 }).messages.create(ask(s));
    });
    check(answer.content[0].text, answer);
    check(waited >= 0.9 && waited < 10, `answered after ${waited} s`);
    return `${waited.toFixed(2)} s`;
  },

  // The engine hangs: the client's own limit of 0.5 s must end the call.
  async timeout(s) {
    const call = () => client(s, { timeout: 500 }).messages.create(ask(s));
    const waited = await secondsOf(() => expectError(Anthropic.APIConnectionTimeoutError, call));
    check(waited < 5, `ended after ${waited} s`);
    return `${waited.toFixed(2)} s`;
  },

  // Leaves after the first words of a long answer.
  async cancel(s) {
    const stream = await client(s).messages.create(ask(s, { stream: true, max_tokens: 2000 }));
    let deltas = 0;
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && ++deltas === 3) stream.controller.abort();
    }
    return `left after ${deltas} deltas`;
  },

  // The engine breaks in mid-answer: the client must see an error after text, never a clean end.
  async stream_broken(s) {
    let deltas = 0;
    const error = await expectError(Anthropic.APIError, async () => {
      for await (const event of await client(s).messages.create(ask(s, { stream: true }))) {
        deltas += event.type === 'content_block_delta' ? 1 : 0;
      }
      return `a clean end after ${deltas} deltas`;
    });
    check(deltas > 0, `no text before the error ${error}`);
    return `${deltas} deltas, then ${error.constructor.name}: ${error.message}`;
  },
};
