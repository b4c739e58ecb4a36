// Scenarios for the npm package `openai`.

import OpenAI from 'openai';

import { check, expectError, longPrompt, secondsOf, unicodePrompt } from './checks.mjs';

const tool = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'Looks up the weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

function client(s, options = {}) {
  return new OpenAI({ baseURL: s.baseURL + '/v1', apiKey: s.apiKey, maxRetries: 0, timeout: 60_000, ...options });
}

function ask(s, more = {}, text = 'Tell me about the sea.') {
  return { model: s.model, max_tokens: 24, messages: [{ role: 'user', content: text }], ...more };
}

const ended = (reason) => reason === 'stop' || reason === 'length';

// Collects a chat stream: text, finish reason, number of chunks with text.
async function textOf(stream) {
  let [text, finish, chunks] = ['', null, 0];
  for await (const chunk of stream) {
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? '';
      chunks += choice.delta.content ? 1 : 0;
      finish = choice.finish_reason ?? finish;
    }
  }
  return { text, finish, chunks };
}

export default {
  async models(s) {
    const ids = [];
    for await (const model of client(s).models.list()) ids.push(model.id);
    check(ids.includes(s.model), ids);
    check((await client(s).models.retrieve(s.model)).id === s.model, 'another model');
    return `${ids.length} models`;
  },

  async models_unknown(s) {
    const error = await expectError(OpenAI.NotFoundError, () => client(s).models.retrieve('no-such-model'));
    return `${error.code}`;
  },

  async chat(s) {
    const answer = await client(s).chat.completions.create(ask(s));
    const { choices: [choice], usage } = answer;
    check(choice.message.role === 'assistant' && choice.message.content, answer);
    check(ended(choice.finish_reason), answer);
    check(usage.prompt_tokens > 0 && usage.total_tokens === usage.prompt_tokens + usage.completion_tokens, usage);
    check(usage.completion_tokens > 0 && usage.completion_tokens <= 24, usage);
    return `${usage.completion_tokens} tokens, request id ${answer._request_id}`;
  },

  async chat_stream(s) {
    const got = await textOf(await client(s).chat.completions.create(ask(s, { stream: true })));
    check(got.text && got.chunks > 1 && ended(got.finish), got);
    return `${got.chunks} chunks`;
  },

  async chat_stream_usage(s) {
    const chunks = [];
    const more = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client(s).chat.completions.create(ask(s, more))) chunks.push(chunk);
    const last = chunks.pop();
    check(last.choices.length === 0 && last.usage, last);
    check(chunks.every((chunk) => !chunk.usage), 'usage before the last chunk');
    check(last.usage.completion_tokens > 0 && last.usage.prompt_tokens > 0, last.usage);
    return `${last.usage.completion_tokens} tokens in ${chunks.length + 1} chunks`;
  },

  // The SDK's own accumulator must find the stream complete and in order.
  async chat_stream_helper(s) {
    const final = await client(s).chat.completions.stream(ask(s)).finalChatCompletion();
    check(final.choices[0].message.content && ended(final.choices[0].finish_reason), final);
    return final.choices[0].message.content;
  },

  async chat_unicode(s) {
    const answer = await client(s).chat.completions.create(ask(s, {}, unicodePrompt));
    const got = await textOf(await client(s).chat.completions.create(ask(s, { stream: true }, unicodePrompt)));
    check(answer.choices[0].message.content && got.text, 'no text');
    check(!got.text.includes('\ufffd'), got.text);
    return got.text;
  },

  async chat_long_prompt(s) {
    const { usage } = await client(s).chat.completions.create(ask(s, { max_tokens: 2 }, longPrompt));
    check(usage.prompt_tokens > 5000, usage);
    return `${usage.prompt_tokens} prompt tokens`;
  },

  async chat_tools(s) {
    const answer = await client(s).chat.completions.create(ask(s, { tools: [tool], tool_choice: 'required' }));
    const [choice] = answer.choices;
    const [call] = choice.message.tool_calls ?? [];
    check(choice.finish_reason === 'tool_calls' && call?.function.name === 'weather' && call.id, answer);
    JSON.parse(call.function.arguments);
    return call.function.arguments;
  },

  async chat_tools_stream(s) {
    let [name, args, finish] = ['', '', null];
    const more = { stream: true, tools: [tool], tool_choice: 'required' };
    for await (const chunk of await client(s).chat.completions.create(ask(s, more))) {
      for (const choice of chunk.choices) {
        for (const call of choice.delta.tool_calls ?? []) {
          name += call.function.name ?? '';
          args += call.function.arguments ?? '';
        }
        finish = choice.finish_reason ?? finish;
      }
    }
    check(name === 'weather' && finish === 'tool_calls', { name, finish });
    JSON.parse(args);
    return args;
  },

  // 16 streams at once, each whole.
  async chat_concurrent(s) {
    const c = client(s);
    const all = Array.from({ length: 16 }, async (_, i) => {
      const got = await textOf(await c.chat.completions.create(ask(s, { stream: true }, `Story ${i}`)));
      check(got.chunks > 1 && ended(got.finish), got);
      return got.chunks;
    });
    return `${(await Promise.all(all)).reduce((a, b) => a + b)} chunks`;
  },

  async completions(s) {
    const answer = await client(s).completions.create({ model: s.model, prompt: 'the sea and the', max_tokens: 12 });
    check(answer.choices[0].text && ended(answer.choices[0].finish_reason), answer);
    check(answer.usage.completion_tokens > 0, answer.usage);
    return answer.choices[0].text;
  },

  async completions_stream(s) {
    let [text, finish] = ['', null];
    const stream = await client(s).completions.create({ model: s.model, prompt: 'the sea', max_tokens: 12, stream: true });
    for await (const chunk of stream) {
      for (const choice of chunk.choices) {
        text += choice.text ?? '';
        finish = choice.finish_reason ?? finish;
      }
    }
    check(text && ended(finish), { text, finish });
    return text;
  },

  async embeddings(s) {
    const answer = await client(s).embeddings.create({ model: s.model, input: ['the sea', 'the land'] });
    const plain = await client(s).embeddings.create({ model: s.model, input: 'the sea', encoding_format: 'float' });
    check(answer.data.length === 2 && answer.data[1].index === 1, answer);
    check(plain.data[0].embedding.length === answer.data[0].embedding.length, 'sizes differ between encodings');
    check(plain.data[0].embedding.every(Number.isFinite), plain);
    return `${plain.data[0].embedding.length} dimensions`;
  },

  async responses(s) {
    const answer = await client(s).responses.create({ model: s.model, input: 'Tell me.', max_output_tokens: 16 });
    check(['completed', 'incomplete'].includes(answer.status) && answer.output_text, answer);
    check(answer.usage.output_tokens > 0, answer.usage);
    return answer.output_text;
  },

  async responses_stream(s) {
    let [text, last] = ['', null];
    const stream = await client(s).responses.create({ model: s.model, input: 'Tell me.', max_output_tokens: 16, stream: true });
    for await (const event of stream) {
      last = event;
      if (event.type === 'response.output_text.delta') text += event.delta;
    }
    check(['response.completed', 'response.incomplete'].includes(last?.type), last);
    check(text && last.response.usage.output_tokens > 0, last);
    return text;
  },

  async error_unknown_model(s) {
    const call = () => client(s).chat.completions.create(ask(s, { model: 'no-such-model' }));
    const error = await expectError(OpenAI.NotFoundError, call);
    check(error.status === 404 && error.code === 'model_not_found', error);
    check(error.message.includes('no-such-model'), error.message);
    return `${error.code}: ${error.message}`;
  },

  async error_missing_model(s) {
    const call = () => client(s).chat.completions.create(ask(s, { model: undefined }));
    const error = await expectError(OpenAI.BadRequestError, call);
    check(error.param === 'model' && error.code?.startsWith('evenkeel_'), error);
    return `${error.code}: ${error.message}`;
  },

  // The engine refuses the request; its own answer must arrive.
  async error_bad_request(s) {
    const call = () => client(s).chat.completions.create(ask(s, { temperature: 'hot' }));
    const error = await expectError(OpenAI.BadRequestError, call);
    check(!String(error.code).startsWith('evenkeel_'), error);
    return error.message;
  },

  async error_wrong_key(s) {
    const call = () => client(s, { apiKey: 'wrong' }).chat.completions.create(ask(s));
    const error = await expectError(OpenAI.AuthenticationError, call);
    check(error.code?.startsWith('evenkeel_'), error);
    return error.code;
  },

  // Nothing can answer: a 5xx in the shape that the client knows.
  async error_unavailable(s) {
    const error = await expectError(OpenAI.InternalServerError, () => client(s).chat.completions.create(ask(s)));
    check([502, 503, 504].includes(error.status) && error.type && error.code?.startsWith('evenkeel_'), error);
    return `${error.status} ${error.code}: ${error.message}`;
  },

  // A 429 with `retry-after: 1` comes first; the client waits and succeeds.
  async retry_after(s) {
    let answer;
    const waited = await secondsOf(async () => {
      answer = await client(s, { maxRetries: 3 }).chat.completions.create(ask(s));
    });
    check(answer.choices[0].message.content, answer);
    check(waited >= 0.9 && waited < 10, `answered after ${waited} s`);
    return `${waited.toFixed(2)} s`;
  },

  // The engine hangs: the client's own limit of 0.5 s must end the call.
  async timeout(s) {
    const call = () => client(s, { timeout: 500 }).chat.completions.create(ask(s));
    const waited = await secondsOf(() => expectError(OpenAI.APIConnectionTimeoutError, call));
    check(waited < 5, `ended after ${waited} s`);
    return `${waited.toFixed(2)} s`;
  },

  // Leaves after three chunks of a long answer.
  async cancel(s) {
    const stream = await client(s).chat.completions.create(ask(s, { stream: true, max_tokens: 2000 }));
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 3) stream.controller.abort();
    }
    return `left after ${chunks} chunks`;
  },

  // Leaves while a whole answer is being generated.
  async cancel_whole(s) {
    const signal = AbortSignal.timeout(300);
    const call = () => client(s).chat.completions.create(ask(s, { max_tokens: 2000 }), { signal });
    await expectError(OpenAI.APIUserAbortError, call);
    return 'left';
  },

  // The engine breaks in mid-answer: the client must see an error after text, never a clean end.
  async stream_broken(s) {
    let chunks = 0;
    const error = await expectError(OpenAI.APIError, async () => {
      for await (const chunk of await client(s).chat.completions.create(ask(s, { stream: true }))) {
        chunks += chunk.choices.some((choice) => choice.delta.content) ? 1 : 0;
      }
      return `a clean end after ${chunks} chunks`;
    });
    check(chunks > 0, `no text before the error ${error}`);
    return `${chunks} chunks, then ${error.constructor.name}: ${error.message}`;
  },

  // The same for responses, where the client also hands an engine's own `error` event to the application.
  async responses_stream_broken(s) {
    let last = null;
    try {
      const stream = await client(s).responses.create({ model: s.model, input: 'Tell me.', max_output_tokens: 24, stream: true });
      for await (const event of stream) last = event;
    } catch (error) {
      if (!(error instanceof OpenAI.APIError)) throw error;
      return `${error.constructor.name}: ${error.message}`;
    }
    check(['error', 'response.failed'].includes(last?.type), last);
    return `event ${JSON.stringify(last)}`;
  },
};
